// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/cuda/nccl/calls.hpp>
#include <lockstep/cuda/nccl/communicator.hpp>
#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/nccl/in_flight.hpp>
#include <lockstep/cuda/nccl/non_blocking.hpp>
#include <lockstep/cuda/nccl/own_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

namespace lockstep::cuda {

// One rank of a non-blocking NCCL communicator, on a GPU of its own. Its operations are work of one
// stream, in the order in which they are issued, messages included. Ranks connect when they first
// have to do with each other, so that the issue of such an operation waits for the others' as well.
//
// While something is in flight `progress` asks NCCL for errors, every few milliseconds, the
// watchdog for ranks that are gone, and the clock. After an error the communicator is aborted, so
// that what waits for a rank that is gone ends; everything that was in flight has failed then, and
// everything that is issued later.
class NcclCarrier final : public distributed::detail::Carrier {
 public:
  using Call = distributed::detail::Call;
  using Collective = distributed::detail::Collective;
  using Done = distributed::detail::Done;
  using Message = distributed::detail::Message;

  // Takes over the communicator, which is ready and whose GPU is that of `device`. `watch`: of
  // these ranks, and of nothing else. `limit`: for how long an operation may take.
  NcclCarrier(int rank, int size, Device device, ncclComm_t comm,
              distributed::detail::GroupWatch watch, std::chrono::milliseconds limit)
      : Carrier(rank, size),
        device_(device),
        own_(device),
        comm_(comm),
        in_flight_(std::move(watch), limit) {}
  // What is in flight ends before, or fails.
  ~NcclCarrier() override {
    if (!comm_ || lockstep::detail::forked()) return;
    try {
      const DeviceGuard guard(device_);
      await_all();
      destroy(comm_, device_, still_waits());
    } catch (...) {
      (void)abort([] { return "the end of the group"; },
                  std::current_exception());  // unless it has been
    }
  }

  // The others wait in NCCL: where somebody watches, they are told.
  void leave(const std::exception_ptr& error) noexcept override {
    (void)abort([] { return "an operation"; }, error);
  }

  // There is nothing in host memory that NCCL could take.
  void run(const Call& call, std::span<const void* const>, std::span<void* const>) override {
    if (call.collective == Collective::barrier) return barrier(call);
    lockstep::detail::fail<DeviceError>(call, " on rank ", rank(), ": ", expected());
  }
  void send(const Message&, const void*, Done done) override { refuse("send", done); }
  void receive(const Message&, void*, Done done) override { refuse("recv", done); }

  std::optional<Stream> stream_for(Device device) override {
    if (device != device_) return std::nullopt;
    return Stream(own_.get());
  }

  void run_on(const Stream& stream, const Call& call, std::span<const void* const> inputs,
              std::span<void* const> outputs, const Done& failed) override {
    const auto name = [&] { return lockstep::detail::str(call); };
    std::optional<NcclPart> part;  // outlives the abort of what it issues
    issue(name, [&] {
      in_flight_.come_to(call);
      if (call.count > 0) {
        part.emplace(stream, rank(), size(), call, inputs, outputs);
        in_group([&] { part->issue(comm_, own_.get().handle(), {&device_, 1}); });
        part->finish();
      }
      in_flight_.push(stream, {name(), call, failed, true});
    });
  }

  void send_on(const Stream& stream, const Message& message, const void* data, Done done) override {
    start(stream, message, false, done, [&](ncclDataType_t type) {
      check(ncclSend(data, message.count, type, message.peer, comm_, own_.get().handle()),
            "ncclSend");
    });
  }
  void receive_on(const Stream& stream, const Message& message, void* data, Done done) override {
    start(stream, message, true, done, [&](ncclDataType_t type) {
      check(ncclRecv(data, message.count, type, message.peer, comm_, own_.get().handle()),
            "ncclRecv");
    });
  }

  // It would have to be in one group of calls.
  bool reaches_itself() const override { return false; }

  // True while anything is in flight.
  bool progress() override {
    if (in_flight_.empty()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kBetweenLooks) return true;
    looked_ = now;
    try {
      look();
    } catch (...) {
      abort_first(std::current_exception());
    }
    return !in_flight_.empty();
  }

  // Waits until all ranks of this have called it.
  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    const auto at = std::find(members.begin(), members.end(), rank());
    ncclComm_t part = nullptr;
    Room room;
    issue([] { return std::string("new_group"); },
          [&] {
            // The communicator must be idle.
            meet({.collective = Collective::new_group, .count = members.size()}, room);
            check(ncclCommSplit(comm_, at == members.end() ? NCCL_SPLIT_NOCOLOR : members.front(),
                                static_cast<int>(at - members.begin()), &part, nullptr),
                  "ncclCommSplit");
            settle(comm_, "ncclCommSplit", device_, still_waits());  // which sets `part`,
            await_part(part);                                        // and this makes it ready
          });
    if (!part) return nullptr;
    std::unique_ptr<Carrier> result;
    try {
      auto watch = in_flight_.watch().part(std::vector<int>(members.begin(), members.end()));
      result = std::make_unique<NcclCarrier>(static_cast<int>(at - members.begin()),
                                             static_cast<int>(members.size()), device_, part,
                                             std::move(watch), in_flight_.limit());
    } catch (...) {  // the others have theirs
      leave(std::current_exception());
      (void)ncclCommAbort(part);
      throw;
    }
    return result;
  }

 private:
  using Room = std::optional<distributed::detail::Scratch>;

  static constexpr std::chrono::milliseconds kBetweenLooks{5};

  void check(ncclResult_t status, const char* call) const {
    check_nccl(status, call, {&device_, 1}, comm_);
  }

  std::string expected() const {
    return lockstep::detail::str("NCCL connects GPUs: expected tensors on ", device_,
                                 ", the device of the group");
  }
  void refuse(const char* operation, const Done& done) const {
    std::exception_ptr error = std::make_exception_ptr(
        DeviceError(lockstep::detail::str(operation, " on rank ", rank(), ": ", expected())));
    done(std::move(error));
  }

  // Runs `body`, which calls NCCL with the rank's GPU current, unless the communicator has failed;
  // it has if that throws, and is aborted. Until then NCCL may make use of what it was given:
  // memory for it is freed by the caller, not by `body`. What is thrown says which operation it
  // was, where NCCL or the watchdog has found the trouble.
  template <class Name, class Body>
  void issue(const Name& name, const Body& body) {
    lockstep::detail::check_not_forked();
    if (!comm_) {
      lockstep::detail::fail<DeviceError>(name(), ": NCCL cannot be used on rank ", rank(), ", on ",
                                          device_,
                                          ", any more, since it failed there before: ", failure_);
    }
    try {
      const DeviceGuard guard(device_);
      in_flight_.watch().check();
      check_async(comm_, {&device_, 1});
      body();
    } catch (...) {
      const std::exception_ptr cause = std::current_exception();
      const std::exception_ptr known = abort(name, cause);
      const bool found = is_a<NcclError>(cause) || is_a<distributed::WatchdogError>(cause);
      std::rethrow_exception(found ? failure(name, known) : cause);
    }
  }

  // Makes calls that start together, and returns when they are work of the stream.
  template <class Body>
  void in_group(const Body& body) {
    NcclGroup calls({&device_, 1}, comm_);
    body();
    calls.start();
    settle(comm_, "ncclGroupEnd", device_, still_waits());
  }

  // For what waits in NCCL, from here on: throws if that may never end.
  std::function<void()> still_waits() {
    return [this, since = InFlight::Clock::now()] {
      in_flight_.take_ended();
      in_flight_.check();
      in_flight_.check_since(since);
    };
  }
  void await_part(ncclComm_t part) {
    if (!part) return;
    try {
      settle(part, "ncclCommSplit", device_, still_waits());
    } catch (...) {
      (void)ncclCommAbort(part);
      throw;
    }
  }

  template <class Body>
  void start(const Stream& stream, const Message& message, bool receives, const Done& done,
             const Body& body) {
    const auto name = [&] {
      return lockstep::detail::str(receives ? "recv" : "send", " of ", message.count, " x ",
                                   message.dtype, " with rank ", message.peer);
    };
    std::exception_ptr error;
    try {
      issue(name, [&] {
        in_group([&] { body(nccl_type(message.dtype)); });
        in_flight_.push(stream, {name(), {}, {}, receives});
      });
    } catch (...) {
      error = std::current_exception();
    }
    // Not within the handler, which would keep a reference to it.
    done(std::move(error));
  }

  // All ranks' GPUs have come to it when it returns.
  void barrier(const Call& call) {
    Room room;
    issue([&] { return lockstep::detail::str(call); }, [&] { meet(call, room); });
  }

  // The same within an operation, with memory that outlives it.
  void meet(const Call& call, Room& room) {
    in_flight_.come_to(call);
    const Stream stream(own_.get());
    void* const one = room.emplace(stream, 1).data();
    in_group([&] {
      check(ncclAllReduce(one, one, 1, ncclUint8, ncclMax, comm_, own_.get().handle()),
            "ncclAllReduce");
    });
    in_flight_.push(stream, {lockstep::detail::str(call), call, {}, false});
    await_all();
  }

  // Waits for what is in flight, and sees to it meanwhile that it can end.
  void await_all() {
    while (!in_flight_.empty()) {
      try {
        look();
      } catch (...) {
        abort_first(std::current_exception());
        throw;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // Throws if what is in flight may never end.
  void look() {
    in_flight_.take_ended();
    if (in_flight_.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < kBetweenLooks) return;
    asked_ = now;
    in_flight_.check();
    check_async(comm_, {&device_, 1});
  }

  template <class E>
  static bool is_a(const std::exception_ptr& cause) noexcept {
    try {
      std::rethrow_exception(cause);
    } catch (const E&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  template <class Name>
  std::string failure_text(const Name& name, const std::exception_ptr& cause) const {
    return lockstep::detail::str(name(), " on rank ", rank(), ", on ", device_, ": ",
                                 text_of(cause));
  }

  // What an operation fails with that has failed because of `cause`; that itself without memory.
  template <class Name>
  std::exception_ptr failure(const Name& name, const std::exception_ptr& cause) const noexcept {
    try {
      const std::string text = failure_text(name, cause);
      try {
        std::rethrow_exception(cause);
      } catch (const distributed::WatchdogError& error) {
        return std::make_exception_ptr(distributed::WatchdogError(text, error.faults()));
      } catch (const NcclError& error) {
        return std::make_exception_ptr(NcclError(text, error.code()));
      } catch (...) {
        return std::make_exception_ptr(NcclError(text, ncclSystemError));
      }
    } catch (...) {
      return cause;
    }
  }

  // `cause`, or what the watchdog says of the ranks: it knows more, and may learn it later, though
  // not much: the end of a process closes its connection to the watchdog as those of NCCL.
  std::exception_ptr known_cause(const std::exception_ptr& cause) const noexcept {
    const distributed::detail::GroupWatch& watch = in_flight_.watch();
    if (!watch.progress() || !may_be_of_others(cause)) return cause;
    try {
      const distributed::detail::Deadline deadline(std::chrono::milliseconds(500));
      while (!watch.faulted() && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (const std::exception_ptr found = watch.exception()) return found;
    } catch (...) {  // no memory
    }
    return cause;
  }

  // Gives the communicator up: all that is in flight has failed. The others are told, unless that
  // is how this rank knows. Returns the cause as far as it is known.
  template <class Name>
  std::exception_ptr abort(const Name& name, const std::exception_ptr& found) noexcept {
    if (!comm_) return found;
    std::exception_ptr cause = known_cause(found);
    failure_ = text_of(failure(name, cause));
    if (!is_a<distributed::WatchdogError>(cause)) in_flight_.watch().abort(text_of(cause));
    try {
      in_flight_.take_ended();
    } catch (...) {
      (void)cudaGetLastError();  // then it has not
    }
    // Before it, or who waits for the GPU would go on first.
    if (const InFlight::Operation* const lost = in_flight_.first_result()) {
      note_lost_results(device_, [&] { return failure_text([&] { return lost->name; }, cause); });
    }
    (void)ncclCommAbort(std::exchange(comm_, nullptr));
    in_flight_.give_up([&](const InFlight::Operation& each) {
      if (each.failed) each.failed(failure([&] { return each.name; }, cause));
    });
    return cause;
  }

  // The same because of what has been found while the first was in flight.
  void abort_first(const std::exception_ptr& cause) noexcept {
    (void)abort([this] { return in_flight_.first().name; }, cause);
  }

  const Device device_;
  const OwnStream own_;
  ncclComm_t comm_;      // null once it has failed,
  std::string failure_;  // because of this
  InFlight in_flight_;
  std::chrono::steady_clock::time_point looked_{};  // by `progress`
  std::chrono::steady_clock::time_point asked_{};   // NCCL and the watchdog
};

}  // namespace lockstep::cuda
