// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <memory>

namespace lockstep::testing {

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
    auto& host = static_cast<lockstep::detail::HostStream&>(stream.state());
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

// While it lives, the default compute streams of all host devices are as asynchronous as a GPU's.
// Plain `cpu` stays as it is: what is done there has ended when the call returns.
//
// Only one at a time, and no other thread may issue work while it is made or destroyed.
class QueuedCompute {
 public:
  QueuedCompute() { set_modes(lockstep::detail::HostStream::Mode::queued); }
  QueuedCompute(const QueuedCompute&) = delete;
  QueuedCompute& operator=(const QueuedCompute&) = delete;
  ~QueuedCompute() { set_modes(lockstep::detail::HostStream::Mode::immediate); }

 private:
  static void set_modes(lockstep::detail::HostStream::Mode mode) noexcept {
    for (const Device device : host_devices()) {
      auto& stream = lockstep::detail::HostBackend::instance().default_stream(device);
      try {
        stream.synchronize();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "an operation on " << device << " threw: " << error.what();
      }
      stream.set_mode(mode);
    }
  }
};

}  // namespace lockstep::testing
