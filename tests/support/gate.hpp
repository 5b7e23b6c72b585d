// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing {

inline lockstep::detail::HostStream& host_stream(const Stream& stream) {
  check<ValueError>(stream.device().is_cpu(), "a stream of ", stream.device(),
                    " is not one of a host device, so a test can neither hold nor queue it");
  return static_cast<lockstep::detail::HostStream&>(stream.state());
}

// Holds queued host streams: what is issued to one behind the gate stays unfinished until the gate
// opens, for as long as a test wants to look at that state. The destructor opens it too, so that a
// test that fails does not hang; whatever waits for the held work when it is destroyed (a
// QueuedCompute, a std::jthread) must therefore be declared before the gate.
//
// Threads: any thread may hold, open and ask. Held operations own the flag, not the gate.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }

  void hold(const Stream& stream) const {
    lockstep::detail::HostStream& host = host_stream(stream);
    check<ValueError>(host.mode() == lockstep::detail::HostStream::Mode::queued,
                      "Gate: a stream of ", stream.device(),
                      " is not queued, so holding it would block the test");
    host.submit([opened = opened_] { opened->wait(false, std::memory_order_acquire); });
  }

  void open() noexcept {
    opened_->store(true, std::memory_order_release);
    opened_->notify_all();
  }

  bool is_open() const { return opened_->load(std::memory_order_acquire); }

 private:
  const std::shared_ptr<std::atomic<bool>> opened_ = std::make_shared<std::atomic<bool>>(false);
};

// Whether `action`, called by another thread whose current stream is `stream`, waits for what the
// gate holds there. Opens the gate, and returns when the action has.
template <class Action>
bool waits_for(Gate& gate, const Stream& stream, const Action& action) {
  std::atomic<bool> begun{false};
  std::atomic<bool> ended{false};
  std::thread thread([&] {
    const StreamGuard guard(stream);
    begun = true;
    action();
    ended = true;
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 1000 && !ended; ++i) std::this_thread::yield();
  const bool waits = !ended;
  gate.open();
  thread.join();
  return waits;
}

// While it lives, these streams of host devices are as asynchronous as a GPU's.
//
// No other thread may issue work while it is made or destroyed.
class Queued {
 public:
  explicit Queued(const std::vector<Stream>& streams) {
    for (const Stream& stream : streams) {
      lockstep::detail::HostStream& host = host_stream(stream);
      before_.emplace_back(&host, host.mode());
      set_mode(host, lockstep::detail::HostStream::Mode::queued);
    }
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;
  ~Queued() {
    for (const auto& [stream, mode] : before_) set_mode(*stream, mode);
  }

 private:
  static void set_mode(lockstep::detail::HostStream& stream,
                       lockstep::detail::HostStream::Mode mode) noexcept {
    try {
      stream.synchronize();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "an operation on " << stream.device() << " threw: " << error.what();
    }
    stream.set_mode(mode);
  }

  std::vector<std::pair<lockstep::detail::HostStream*, lockstep::detail::HostStream::Mode>> before_;
};

// The same for the default compute streams of all host devices. Plain `cpu` stays as it is: what is
// done there has ended when the call returns.
class QueuedCompute : public Queued {
 public:
  QueuedCompute() : Queued(compute_streams()) {}

 private:
  static std::vector<Stream> compute_streams() {
    std::vector<Stream> streams;
    for (const Device device : host_devices()) streams.push_back(default_stream(device));
    return streams;
  }
};

// Whether the tensor's memory is recorded on this stream of a host device, which is idle: whether
// who overwrites it waits for the stream.
inline bool is_recorded_on(const Stream& stream, const Tensor& tensor) {
  Stream writer = pool_stream(tensor.device());
  while (writer == stream) writer = pool_stream(tensor.device());
  const Queued queued({stream, writer});
  Gate gate;
  gate.hold(stream);
  tensor.impl()->storage->order_write(writer);
  return !writer.query();
}

}  // namespace lockstep::testing
