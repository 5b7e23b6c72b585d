// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/group_watch.hpp>
#include <lockstep/distributed/kept_memory.hpp>
#include <lockstep/distributed/operands.hpp>
#include <lockstep/distributed/watchdog_progress.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/profile/record_function.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The tensors that one side of an operation has: as many as there are parts, or one that all parts
// follow one another in.
struct Parts {
  std::vector<Tensor> tensors;
  std::size_t count = 1;
};

// What a group's operations use. It outlives the handles until the last operation has ended.
//
// Threads: the communication thread alone, or whoever runs in its place.
class GroupLink {
 public:
  GroupLink(std::unique_ptr<Carrier> carrier, CommunicationThread& thread, GroupWatch watch)
      : thread_(thread), watch_(std::move(watch)), carrier_(std::move(carrier)) {}
  GroupLink(const GroupLink&) = delete;
  GroupLink& operator=(const GroupLink&) = delete;
  ~GroupLink() {
    if (carrier_) thread_.forget(*carrier_);
  }

  const Carrier& carrier() const { return *carrier_; }
  const GroupWatch& watch() const { return watch_; }
  // In a forked child: the carrier's other side is the parent's.
  void abandon() noexcept { (void)carrier_.release(); }

  void run(const Call& call, Operands& operands, const Completion& completion) noexcept {
    const profile::RecordFunction range(literal(call.collective), {}, {.bytes = call.bytes()});
    std::exception_ptr error;
    try {
      operands.stage(*carrier_);
      within(call, [&] { carry(call, operands, completion); });
      operands.finish(completion.state());
    } catch (...) {
      error = std::current_exception();
    }
    if (carrier_->may_use_memory()) {
      keep_for_ever(std::make_shared<Operands>(std::move(operands)));
    } else {
      operands.release();
    }
    completion.finish(std::move(error));
    if (operands.stream() && carrier_->progress()) thread_.attend(*carrier_);
  }

  void start(const Message& message, Operands& operands, bool sends, const Done& done) noexcept {
    std::exception_ptr error;
    try {
      watch_.check();
      operands.stage(*carrier_);
      issue(message, operands, sends, done);
      if (carrier_->progress()) thread_.attend(*carrier_);
    } catch (...) {
      error = std::current_exception();
    }
    // Not within the handler, which would keep a reference to it.
    if (error) done(std::move(error));
  }

  std::unique_ptr<Carrier> split(const std::vector<int>& members) {
    std::unique_ptr<Carrier> part;
    within({.collective = Collective::new_group, .count = members.size()},
           [&] { part = carrier_->split(members); });
    return part;
  }

 private:
  // Runs `body`, in which the rank waits for the others. What it throws once a fault is known comes
  // of that.
  template <class Body>
  void within(const Call& call, const Body& body) {
    const InCollective here(watch_.progress(), call);
    try {
      watch_.check();
      body();
    } catch (...) {
      watch_.check();
      throw;
    }
  }

  void carry(const Call& call, const Operands& operands, const Completion& completion) {
    if (const auto& stream = operands.stream()) {
      const Done failed = [completion](std::exception_ptr late) {
        completion.fail(std::move(late));
      };
      carrier_->run_on(*stream, call, operands.inputs(), operands.outputs(), failed);
    } else {
      carrier_->run(call, operands.inputs(), operands.outputs());
    }
  }

  void issue(const Message& message, const Operands& operands, bool sends, const Done& done) {
    const auto& stream = operands.stream();
    if (stream && sends) return carrier_->send_on(*stream, message, operands.inputs()[0], done);
    if (stream) return carrier_->receive_on(*stream, message, operands.outputs()[0], done);
    if (sends) return carrier_->send(message, operands.inputs()[0], done);
    carrier_->receive(message, operands.outputs()[0], done);
  }

  CommunicationThread& thread_;
  const GroupWatch watch_;
  std::unique_ptr<Carrier> carrier_;  // set until the end
};

// Where a collective runs, and whether its caller waits for the end.
enum class Issue {
  queued,   // in the communication thread; the caller goes on
  idle,     // in the calling thread if it would be next, else queued
  blocking  // the same, and the caller waits
};

// What is behind the handles of a process group.
class GroupState {
 public:
  GroupState(std::unique_ptr<Carrier> carrier, std::shared_ptr<CommunicationThread> thread,
             Device device, GroupWatch watch = {})
      : thread_(std::move(thread)),
        rank_(carrier->rank()),
        size_(carrier->size()),
        device_(device),
        link_(std::make_shared<GroupLink>(std::move(carrier), *thread_, std::move(watch))) {}
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  // Waits for nothing. A carrier ends where it runs: in turn with the operations of the rank's
  // other groups, and after its own.
  ~GroupState() {
    if (lockstep::detail::forked()) {
      link_->abandon();
      return;
    }
    auto end = [link = std::move(link_)]() mutable noexcept { link.reset(); };
    try {
      if (!thread_->run_here(end)) thread_->issue(CommunicationThread::Task(std::move(end)));
    } catch (const std::exception&) {
      // No memory, or no thread: it ends with the last of its operations, or here.
    }
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  const std::shared_ptr<CommunicationThread>& thread() const { return thread_; }
  const GroupWatch& watch() const { return link_->watch(); }

  // Runs a collective after all that was issued before it.
  Work collective(const Call& call, const Parts& reads, const Parts& writes, Issue issue) {
    Operands operands(reads.tensors, reads.count, writes.tensors, writes.count);
    const bool on_gpu = operands.gpu().has_value();
    Completion completion;
    const Work work = completion.work();
    auto execute = [link = link_, call, operands = std::move(operands),
                    completion]() mutable noexcept { link->run(call, operands, completion); };
    // On a GPU it may have to be seen after when it has been issued.
    if (issue == Issue::queued || on_gpu || !thread_->run_here(execute)) {
      thread_->issue(CommunicationThread::Task(std::move(execute)));
    }
    if (issue == Issue::blocking) work.wait();
    return work;
  }

  // Starts a message after all that was issued before it.
  Work message(const Message& message, const Tensor& tensor, bool sends) {
    const std::vector<Tensor> one{tensor};
    const std::vector<Tensor> none;
    auto operands = std::make_shared<Operands>(sends ? one : none, 1, sends ? none : one, 1);
    Completion completion;
    const Work work = completion.work();
    Done done = [operands, completion](std::exception_ptr error) {
      try {
        if (!error) operands->finish(completion.state());
      } catch (...) {
        error = std::current_exception();
      }
      // What has failed may use its memory as long as the carrier keeps this.
      if (!error) operands->release();
      completion.finish(std::move(error));
    };
    thread_->issue(CommunicationThread::Task(
        [link = link_, message, sends, operands = std::move(operands),
         done = std::move(done)]() noexcept { link->start(message, *operands, sends, done); }));
    return work;
  }

  // Null on a rank that is not among the members.
  std::shared_ptr<GroupState> split(const std::vector<int>& members) {
    std::unique_ptr<Carrier> part;
    std::exception_ptr error;
    thread_->issue(CommunicationThread::Task([&]() noexcept {
      try {
        part = link_->split(members);
      } catch (...) {
        error = std::current_exception();
      }
    }));
    thread_->drain();
    if (error) std::rethrow_exception(error);
    if (!part) return nullptr;
    return std::make_shared<GroupState>(std::move(part), thread_, device_, watch().part(members));
  }

 private:
  const std::shared_ptr<CommunicationThread> thread_;
  const int rank_;
  const int size_;
  const Device device_;
  std::shared_ptr<GroupLink> link_;  // set until the end
};

}  // namespace lockstep::distributed::detail
