// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/operands.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// What a group's operations use. Each operation holds it, so it lives until the last one has ended,
// even without handles.
//
// Threads: one at a time, the communication thread or one that runs an operation in its place. Any
// thread may ask for the `carrier`; Carrier says what it may call there.
class GroupLink : lockstep::detail::NonCopyable {
 public:
  // If it throws, the caller keeps the carrier.
  GroupLink(std::unique_ptr<Carrier>&& carrier, CommunicationThread& thread, GroupWatch watch)
      : thread_(thread),
        watch_(std::move(watch)),
        carrier_(nullptr, [](Carrier* mine) { delete mine; }) {
    thread_.add(*carrier);
    carrier_.reset(carrier.release());
    carrier_->call_in_waits([&thread] { (void)thread.poll(); });
  }
  ~GroupLink() {
    if (carrier_) thread_.remove(*carrier_);
  }

  Carrier& carrier() const { return *carrier_; }
  const GroupWatch& watch() const { return watch_; }
  // For a forked child: lets go of the carrier, which is the parent's, without destroying it.
  void abandon() noexcept { (void)carrier_.release(); }

  void run(const Call& call, Operands& operands, const Completion& completion) noexcept {
    const profile::RecordFunction range(literal(call.collective), {}, {.bytes = call.bytes()});
    std::exception_ptr error = lockstep::detail::thrown_by([&] {
      Done failed;
      carrier_->or_leave([&] {
        operands.stage(*carrier_);
        if (operands.stream() == nullptr) return;
        failed = [completion](std::exception_ptr late) { completion.fail(std::move(late)); };
      });
      run_watched(call, [&] { carry(call, operands, failed); });
      carrier_->or_leave([&] { operands.finish(completion.state()); });
    });
    operands.release();
    completion.finish(std::move(error));
  }

  void start(const Message& message, Operands& operands, const Done& done) noexcept {
    std::exception_ptr error = lockstep::detail::thrown_by([&] {
      watch_.check();
      Done done_of_carrier;
      carrier_->or_leave([&] {
        operands.stage(*carrier_);
        done_of_carrier = done;
      });
      void* const data =
          message.sends ? const_cast<void*>(operands.inputs()[0]) : operands.outputs()[0];
      carrier_->start(message, data, std::move(done_of_carrier), operands.stream());
    });
    if (error) done(std::move(error));
  }

  std::unique_ptr<Carrier> split(const std::vector<int>& members) {
    std::unique_ptr<Carrier> part;
    run_watched({.collective = Collective::new_group, .count = members.size()},
                [&] { part = carrier_->split(members); });
    return part;
  }

 private:
  // Runs `body`, in which the rank waits for the others. If `body` throws after the watchdog has
  // found a fault, the fault, which is the cause, is thrown instead; but an error that calls do not
  // match, which may be the cause of the fault, is thrown itself.
  template <class Body>
  void run_watched(const Call& call, const Body& body) {
    const InCollective here(watch_.progress(), call);
    try {
      watch_.check();
      body();
    } catch (const ValueError&) {
      throw;
    } catch (...) {
      const std::exception_ptr mismatch = watch_.faulted() ? carrier_->mismatch() : nullptr;
      if (mismatch) std::rethrow_exception(mismatch);
      watch_.check();
      throw;
    }
  }

  // Calls `failed` if the operation fails after it was issued.
  void carry(const Call& call, Operands& operands, const Done& failed) {
    try {
      carrier_->run(call, operands.inputs(), operands.outputs(), operands.stream(), failed);
    } catch (...) {
      if (carrier_->buffers_in_flight()) operands.leak();
      throw;
    }
  }

  CommunicationThread& thread_;
  const GroupWatch watch_;
  // Set until `abandon`. Deleted by a pointer to a function: by a virtual destructor, g++ would
  // compile all of a carrier for every program in which a shared_ptr ends.
  std::unique_ptr<Carrier, void (*)(Carrier*)> carrier_;
};

// What the handles on a process group share.
class GroupState : lockstep::detail::NonCopyable {
 public:
  // Made while no operation of `thread` runs. If it throws, the caller keeps the carrier.
  GroupState(std::unique_ptr<Carrier>&& carrier, std::shared_ptr<CommunicationThread> thread,
             Device device, GroupWatch watch = {})
      : thread_(std::move(thread)),
        device_(device),
        link_(std::make_shared<GroupLink>(std::move(carrier), *thread_, std::move(watch))) {}
  // Queues the carrier's destruction like an operation: after the group's own, and while none of
  // the rank's other groups runs. It waits only if memory runs out: for the operation that runs.
  ~GroupState() {
    if (lockstep::detail::forked()) {
      link_->abandon();
      return;
    }
    CommunicationThread::Task end([link = std::move(link_)]() mutable noexcept { link.reset(); });
    const std::exception_ptr error = lockstep::detail::thrown_by([&] {
      if (!thread_->run_here(end)) thread_->issue(std::move(end));
    });
    // No memory, or no thread: the carrier is destroyed with the group's last operation, or here.
    if (error) thread_->between_operations(end);
  }

  int rank() const { return link_->carrier().rank(); }
  int size() const { return link_->carrier().size(); }
  Device device() const { return device_; }
  const std::shared_ptr<CommunicationThread>& thread() const { return thread_; }
  const GroupWatch& watch() const { return link_->watch(); }

  // Runs a collective after all operations issued before it.
  Work collective(const Call& call, const Parts& reads, const Parts& writes, Execution execution) {
    Work work;
    issue_or_leave([&] {
      Operands operands(reads, writes);
      const bool on_gpu = operands.gpu().has_value();
      Completion completion(work);
      auto execute = [link = link_, call, operands = std::move(operands),
                      completion]() mutable noexcept { link->run(call, operands, completion); };
      // On a GPU the communication thread may have to poll the carrier afterwards.
      if (execution == Execution::queued || on_gpu || !thread_->run_here(execute)) {
        thread_->issue(CommunicationThread::Task(std::move(execute)));
      }
    });
    if (execution == Execution::blocking) work.wait();
    return work;
  }

  bool reaches_itself() const { return link_->carrier().reaches_itself(); }
  // Starts a message after all operations issued before it. A send to this rank itself sends a
  // copy, and its Work has ended.
  Work message(const Message& message, const Tensor& tensor) {
    Work work;
    const bool sends = message.sends;
    const bool to_itself = sends && message.peer == rank();
    issue_or_leave([&] {
      const Tensor sent = to_itself ? lockstep::detail::copy_as(tensor, tensor.options()) : tensor;
      const Parts one{{&sent, 1}};
      const Parts none;
      auto operands = std::make_shared<Operands>(sends ? one : none, sends ? none : one);
      Completion completion(work);
      Done done = [operands, completion](std::exception_ptr error) {
        const bool taken = !error;
        if (taken) {
          error = lockstep::detail::thrown_by([&] { operands->finish(completion.state()); });
        }
        // On the host a message that was not taken may use its memory for as long as the carrier
        // keeps `done`.
        if (taken || operands->stream()) operands->release();
        completion.finish(std::move(error));
      };
      thread_->issue(CommunicationThread::Task(
          [link = link_, message, operands = std::move(operands),
           done = std::move(done)]() noexcept { link->start(message, *operands, done); }));
    });
    return to_itself ? Work() : work;
  }

  // Null on ranks that are not members.
  std::shared_ptr<GroupState> split(const std::vector<int>& members) {
    std::unique_ptr<Carrier> part;
    std::exception_ptr error;
    issue_or_leave([&] {
      thread_->issue(CommunicationThread::Task([&]() noexcept {
        error = lockstep::detail::thrown_by([&] { part = link_->split(members); });
      }));
    });
    thread_->drain();
    if (error) std::rethrow_exception(error);
    if (!part) return nullptr;
    std::shared_ptr<GroupState> result;
    issue_or_leave([&] {
      thread_->between_operations([&] {
        std::unique_ptr<Carrier> carrier = std::move(part);  // destroyed in here if this throws
        carrier->or_leave([&] {
          GroupWatch watches = watch().part(members);
          result = std::make_shared<GroupState>(std::move(carrier), thread_, device_,
                                                std::move(watches));
        });
      });
    });
    return result;
  }

 private:
  // Runs `body`, which issues an operation that the other ranks take part in. If it throws, the
  // rank leaves the group: at once if the carrier can break off a running operation, else when
  // those issued before have ended.
  template <class Body>
  void issue_or_leave(const Body& body) {
    try {
      body();
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }
  void leave(const std::exception_ptr& error) noexcept {
    if (lockstep::detail::forked()) return;
    Carrier& carrier = link_->carrier();
    carrier.break_off(error);
    thread_->drain();
    thread_->between_operations([&] { carrier.leave(error); });
  }

  const std::shared_ptr<CommunicationThread> thread_;
  const Device device_;
  std::shared_ptr<GroupLink> link_;  // set until the destructor
};

}  // namespace lockstep::distributed::detail
