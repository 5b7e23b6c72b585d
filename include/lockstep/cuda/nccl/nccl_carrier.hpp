// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/gpu_scratch.hpp>
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
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <climits>
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

// One rank of a non-blocking NCCL communicator, on a GPU of its own. Its operations, messages
// included, are work of one stream, in the order of their issue. NCCL connects two ranks in their
// first operation with each other, so the issue of that waits until the other rank issues it, too.
//
// While something is in flight, `progress` looks every few milliseconds whether NCCL has met an
// error, the watchdog has found a rank that is gone, or the time limit is over. Then it aborts the
// communicator, so that what waits for a rank that is gone ends. All that was in flight fails then,
// and so does all that is issued later.
//
// An abort returns when the communicator's work has ended, and that may be behind what waits for
// ever in another one. So those of a rank's groups that came of one by `split` are aborted together
// if they have something in flight.
class NcclCarrier final : public distributed::detail::Carrier {
 public:
  using Call = distributed::detail::Call;
  using Collective = distributed::detail::Collective;
  using Done = distributed::detail::Done;
  using Message = distributed::detail::Message;

  // One rank's carriers that came of one by `split`.
  using Family = std::vector<NcclCarrier*>;

  // Takes over the communicator, which is ready, on the GPU of `device`. `watch` watches these
  // ranks alone. `limit`: how long an operation may take.
  NcclCarrier(int rank, int size, Device device, OwnedCommunicator comm,
              distributed::detail::GroupWatch watch, std::chrono::milliseconds limit,
              std::shared_ptr<Family> family = std::make_shared<Family>())
      : Carrier(rank, size),
        device_(device),
        own_(device),
        comm_(std::move(comm)),
        in_flight_(std::move(watch), limit),
        family_(std::move(family)) {
    family_->push_back(this);
  }
  // Waits until what is in flight has ended, or aborts it.
  ~NcclCarrier() override {
    if (lockstep::detail::forked()) (void)comm_.release();
    if (comm_) end();
    std::erase(*family_, this);
  }

  // Aborts the communicator. The other ranks, which wait in NCCL, are told if there is a watchdog.
  void leave(const std::exception_ptr& error) noexcept override {
    (void)abort([] { return "an operation"; }, error);
  }

  // NCCL takes no tensors in host memory: of operations without a stream only a barrier is
  // possible, which returns when all ranks' GPUs have come to it.
  void run(const Call& call, std::span<const void* const> inputs, std::span<void* const> outputs,
           const Stream* stream, const Done& failed) override {
    if (!stream && call.collective != Collective::barrier) {
      lockstep::detail::fail<DeviceError>(call, " on rank ", rank(), ": ", expected());
    }
    const auto name = [&] { return lockstep::detail::str(call); };
    std::optional<NcclPart> part;  // its memory has to outlive the abort of what it issues
    Room room;
    issue(name, [&] {
      if (!stream) return meet(call, room);
      in_flight_.about_to_issue(call);
      if (call.count > 0) {
        part.emplace(*stream, rank(), size(), call, inputs, outputs);
        in_group([&] { part->issue(comm_.get(), own_.get().lend_handle(), {&device_, 1}); });
        part->finish();
      }
      in_flight_.push(*stream, {name(), call, failed, true});
    });
  }

  void start(const Message& message, void* data, Done done, const Stream* stream) override {
    const char* const operation = message.sends ? "send" : "recv";
    done(lockstep::detail::thrown_by([&] {
      if (!stream) {
        lockstep::detail::fail<DeviceError>(operation, " on rank ", rank(), ": ", expected());
      }
      const auto name = [&] {
        return lockstep::detail::str(operation, " of ", message.count, " x ", message.dtype,
                                     " with rank ", message.peer);
      };
      issue(name, [&] {
        in_group([&] {
          const ncclDataType_t type = nccl_type(message.dtype);
          const cudaStream_t own = own_.get().lend_handle();
          if (message.sends) {
            check(ncclSend(data, message.count, type, message.peer, comm_.get(), own), "ncclSend");
          } else {
            check(ncclRecv(data, message.count, type, message.peer, comm_.get(), own), "ncclRecv");
          }
        });
        in_flight_.push(*stream, {name(), {}, {}, !message.sends});
      });
    }));
  }

  std::optional<Stream> stream_for(Device device) override {
    if (device != device_) return std::nullopt;
    return Stream(own_.get());
  }

  // False: NCCL would need the send and the receive in one group of calls.
  bool reaches_itself() const override { return false; }

  // True while anything is in flight.
  bool progress() override {
    if (in_flight_.empty()) return false;
    if (std::chrono::steady_clock::now() - asked_ < kBetweenLooks) return true;
    try {
      look();
    } catch (...) {
      abort_first(std::current_exception());
    }
    return !in_flight_.empty();
  }

  // Returns the carrier of `members`, null for other ranks. Waits until all ranks of this one have
  // called it.
  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    const auto at = std::find(members.begin(), members.end(), rank());
    // NCCL puts those together who have the same ranks in the same order.
    const int color = static_cast<int>(distributed::detail::hash_of(members) % INT_MAX);
    int came = 0;
    ncclComm_t made = nullptr;  // NCCL may set it until `comm_` is aborted
    OwnedCommunicator part;
    Room room;
    issue([] { return std::string("new_group"); },
          [&] {
            // NCCL splits only a communicator that is idle.
            meet({.collective = Collective::new_group, .count = members.size()}, room);
            check(ncclCommSplit(comm_.get(), at == members.end() ? NCCL_SPLIT_NOCOLOR : color,
                                static_cast<int>(at - members.begin()), &made, nullptr),
                  "ncclCommSplit");
            settle(comm_.get(), "ncclCommSplit", device_, still_waits());  // which sets `made`
            OwnedCommunicator owned(made);
            if (made) {
              settle(made, "ncclCommSplit", device_, still_waits());  // it is ready then
              check(ncclCommCount(made, &came), "ncclCommCount");
            }
            part = std::move(owned);
          });
    if (!part) return nullptr;
    lockstep::check<ValueError>(came == static_cast<int>(members.size()), "new_group: only ", came,
                                " of the ", members.size(), " ranks that rank ", rank(),
                                " lists have listed the same, in the same order");
    try {
      auto watch = in_flight_.watch().part(std::vector<int>(members.begin(), members.end()));
      return std::make_unique<NcclCarrier>(
          static_cast<int>(at - members.begin()), static_cast<int>(members.size()), device_,
          std::move(part), std::move(watch), in_flight_.limit(), family_);
    } catch (...) {  // the other ranks have their carriers
      leave(std::current_exception());
      throw;
    }
  }

 private:
  using Room = std::optional<lockstep::detail::GpuScratch>;

  static constexpr std::chrono::milliseconds kBetweenLooks{5};

  void end() noexcept {
    try {
      const DeviceGuard guard(device_);
      await_all();
      destroy(std::move(comm_), device_, still_waits());
    } catch (...) {
      (void)abort([] { return "the end of the group"; },
                  std::current_exception());  // does nothing if it has been aborted already
    }
  }

  void check(ncclResult_t status, const char* call) const {
    check_nccl(status, call, {&device_, 1}, comm_.get());
  }

  std::string expected() const {
    return lockstep::detail::str("NCCL connects GPUs: expected tensors on ", device_,
                                 ", the device of the group");
  }
  // Runs `body`, which calls NCCL, with the rank's GPU current; throws a DeviceError if the
  // communicator has failed. If `body` throws, the communicator is aborted. Until then NCCL may use
  // the memory that `body` gave it, so the caller frees that, not `body`. An error that NCCL or the
  // watchdog has found is thrown again with the name of the operation.
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
      check_async(comm_.get(), {&device_, 1});
      body();
    } catch (...) {
      const std::exception_ptr cause = std::current_exception();
      const std::exception_ptr known = abort(name, cause);
      const bool found = is_a<NcclError>(cause) || is_a<distributed::WatchdogError>(cause);
      std::rethrow_exception(found ? failure(name, known) : cause);
    }
  }

  // Makes calls that start together, and returns when NCCL has issued them to its stream.
  template <class Body>
  void in_group(const Body& body) {
    NcclGroup calls({&device_, 1}, comm_.get());
    body();
    calls.start();
    settle(comm_.get(), "ncclGroupEnd", device_, still_waits());
  }

  // Returns the check for a wait in NCCL that begins now: it throws if that wait may never end.
  std::function<void()> still_waits() {
    return [this, since = InFlight::Clock::now()] {
      in_flight_.take_ended();
      in_flight_.check();
      in_flight_.check_since(since);
    };
  }

  // Returns when all ranks' GPUs have come here, within an operation; `room` gets memory that has
  // to outlive that.
  void meet(const Call& call, Room& room) {
    in_flight_.about_to_issue(call);
    const Stream stream(own_.get());
    void* const one = room.emplace(stream.state(), 1).data();
    in_group([&] {
      check(ncclAllReduce(one, one, 1, ncclUint8, ncclMax, comm_.get(), own_.get().lend_handle()),
            "ncclAllReduce");
    });
    in_flight_.push(stream, {lockstep::detail::str(call), call, {}, false});
    await_all();
  }

  // Waits for what is in flight. Aborts it and throws if it may never end.
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
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < kBetweenLooks) return;
    asked_ = now;
    if (in_flight_.empty()) return;
    in_flight_.check();
    check_async(comm_.get(), {&device_, 1});
  }

  template <class Name>
  std::string failure_text(const Name& name, const std::exception_ptr& cause) const {
    return lockstep::detail::str(name(), " on rank ", rank(), ", on ", device_, ": ",
                                 text_of(cause));
  }

  // The error of an operation that failed because of `cause`: its text names the operation, its
  // type is that of `cause` if NCCL or the watchdog threw that. Without memory, `cause` itself.
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

  // Aborts the communicator and those of the family, and fails all that is in flight. Tells the
  // other ranks through the watchdog, unless the watchdog told this one. Returns the cause as far
  // as it is known.
  template <class Name>
  std::exception_ptr abort(const Name& name, const std::exception_ptr& found) noexcept {
    if (!comm_) return found;
    std::exception_ptr cause = in_flight_.known_cause(found);
    failure_ = text_of(failure(name, cause));
    if (!is_a<distributed::WatchdogError>(cause)) in_flight_.watch().abort(text_of(cause));
    std::optional<DeviceGuard> guard;  // or another GPU, the thread's, has a context afterwards
    try {
      guard.emplace(device_);
    } catch (...) {
      (void)cudaGetLastError();
    }
    prepare_abort(true, cause);  // before others: the first reason that a GPU notes stays
    for (NcclCarrier* const each : *family_) {
      if (each != this) each->prepare_abort(false, cause);
    }
    const bool together = ncclGroupStart() == ncclSuccess;
    for (NcclCarrier* const each : *family_) {
      if (each->aborts_) each->comm_.reset();
    }
    if (together) (void)ncclGroupEnd();
    for (NcclCarrier* const each : *family_) each->finish_abort(cause);
    return cause;
  }
  void prepare_abort(bool is_first, const std::exception_ptr& cause) noexcept {
    try {
      in_flight_.take_ended();
    } catch (...) {
      (void)cudaGetLastError();  // the GPU has failed: nothing more has ended
    }
    aborts_ = comm_ && (is_first || !in_flight_.empty());
    if (!aborts_) return;
    if (!is_first) {
      failure_ = text_of(failure([this] { return in_flight_.first().name; }, cause));
    }
    // Before the abort, which ends the GPU's wait: who waits for the GPU must not miss it.
    if (const InFlight::Operation* const lost = in_flight_.first_result()) {
      note_lost_results(device_, [&] { return failure_text([&] { return lost->name; }, cause); });
    }
  }
  void finish_abort(const std::exception_ptr& cause) noexcept {
    if (!std::exchange(aborts_, false)) return;
    in_flight_.give_up([&](const InFlight::Operation& each) {
      if (each.failed) each.failed(failure([&] { return each.name; }, cause));
    });
  }

  // The same for an error found while operations were in flight: its text names the first one.
  void abort_first(const std::exception_ptr& cause) noexcept {
    (void)abort([this] { return in_flight_.first().name; }, cause);
  }

  const Device device_;
  const OwnStream own_;
  OwnedCommunicator comm_;  // null once it has failed
  std::string failure_;     // why `comm_` is null
  InFlight in_flight_;
  const std::shared_ptr<Family> family_;  // used as the carriers are: by one thread at a time
  bool aborts_ = false;                   // while an abort goes on: this one takes part
  std::chrono::steady_clock::time_point asked_{};  // when NCCL and the watchdog were last due
};

}  // namespace lockstep::cuda
