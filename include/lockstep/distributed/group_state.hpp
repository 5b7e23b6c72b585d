// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/operands.hpp>
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

// What is behind the handles of a process group.
class GroupState {
 public:
  GroupState(std::unique_ptr<Carrier> carrier, std::shared_ptr<CommunicationThread> thread,
             Device device)
      : thread_(std::move(thread)), carrier_(std::move(carrier)), device_(device) {}
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  // What was issued goes through the carrier, so it comes first. A carrier ends where it runs: in
  // turn with the operations of the rank's other groups.
  ~GroupState() {
    if (lockstep::detail::forked()) {  // the carrier's other side is the parent's
      (void)carrier_.release();
      return;
    }
    thread_->drain();
    thread_->leave(*carrier_, [this] { carrier_.reset(); });
  }

  int rank() const { return carrier_->rank(); }
  int size() const { return carrier_->size(); }
  Device device() const { return device_; }
  const std::shared_ptr<CommunicationThread>& thread() const { return thread_; }

  // Runs a collective after all that was issued before it: in the calling thread, if nothing of
  // that is unfinished and the caller waits for the end anyway.
  Work collective(const Call& call, const Parts& reads, const Parts& writes, bool blocking) {
    Operands operands(reads.tensors, reads.count, writes.tensors, writes.count);
    Completion completion;
    const Work work = completion.work();
    auto execute = [this, call, operands = std::move(operands), completion]() mutable noexcept {
      run(call, operands, completion);
    };
    if (!blocking || !thread_->run_here(execute)) {
      thread_->issue(CommunicationThread::Task(std::move(execute)));
    }
    if (blocking) work.wait();
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
      operands->release();
      completion.finish(std::move(error));
    };
    thread_->issue(CommunicationThread::Task(
        [this, message, sends, operands = std::move(operands), done = std::move(done)]() noexcept {
          try {
            operands->stage();
            if (sends) {
              carrier_->send(message, operands->inputs()[0], done);
            } else {
              carrier_->receive(message, operands->outputs()[0], done);
            }
            if (carrier_->progress()) thread_->attend(*carrier_);
          } catch (...) {
            done(std::current_exception());
          }
        }));
    return work;
  }

  // Null on a rank that is not among the members.
  std::shared_ptr<GroupState> split(std::vector<int> members) {
    std::unique_ptr<Carrier> part;
    std::exception_ptr error;
    thread_->issue(CommunicationThread::Task([&]() noexcept {
      try {
        part = carrier_->split(members);
      } catch (...) {
        error = std::current_exception();
      }
    }));
    thread_->drain();
    if (error) std::rethrow_exception(error);
    if (!part) return nullptr;
    return std::make_shared<GroupState>(std::move(part), thread_, device_);
  }

 private:
  void run(const Call& call, Operands& operands, const Completion& completion) noexcept {
    const profile::RecordFunction range(literal(call.collective), {}, {.bytes = call.bytes()});
    std::exception_ptr error;
    try {
      operands.stage();
      carrier_->run(call, operands.inputs(), operands.outputs());
      operands.finish(completion.state());
    } catch (...) {
      error = std::current_exception();
    }
    operands.release();
    completion.finish(std::move(error));
  }

  const std::shared_ptr<CommunicationThread> thread_;
  std::unique_ptr<Carrier> carrier_;  // set until the end
  const Device device_;
};

}  // namespace lockstep::distributed::detail
