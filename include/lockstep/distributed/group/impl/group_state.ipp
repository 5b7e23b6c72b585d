// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/operands.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/profile/record_function.hpp>

#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE GroupLink::~GroupLink() {
  if (carrier_) thread_.stop_polling(*carrier_);
}

LOCKSTEP_INLINE void GroupLink::run(const Call& call, Operands& operands,
                                    const Completion& completion) noexcept {
  const profile::RecordFunction range(literal(call.collective), {}, {.bytes = call.bytes()});
  std::exception_ptr error;
  try {
    Done failed;
    carrier_->alone([&] {
      operands.stage(*carrier_);
      if (!operands.stream()) return;
      failed = [completion](std::exception_ptr late) { completion.fail(std::move(late)); };
      thread_.make_room();
    });
    within(call, [&] { carry(call, operands, failed); });
    carrier_->alone([&] { operands.finish(completion.state()); });
  } catch (...) {
    error = std::current_exception();
  }
  operands.release();
  completion.finish(std::move(error));
  if (operands.stream() && carrier_->progress()) thread_.start_polling(*carrier_);
}

LOCKSTEP_INLINE void GroupLink::start(const Message& message, Operands& operands,
                                      const Done& done) noexcept {
  std::exception_ptr error;
  try {
    watch_.check();
    Done carriers;
    carrier_->alone([&] {
      operands.stage(*carrier_);
      carriers = done;
      thread_.make_room();
    });
    void* const data =
        message.sends ? const_cast<void*>(operands.inputs()[0]) : operands.outputs()[0];
    const auto& stream = operands.stream();
    carrier_->start(message, data, std::move(carriers), stream ? &*stream : nullptr);
    if (carrier_->progress()) thread_.start_polling(*carrier_);
  } catch (...) {
    error = std::current_exception();
  }
  // Not within the handler, which would keep a reference to the error.
  if (error) done(std::move(error));
}

LOCKSTEP_INLINE std::unique_ptr<Carrier> GroupLink::split(const std::vector<int>& members) {
  std::unique_ptr<Carrier> part;
  within({.collective = Collective::new_group, .count = members.size()},
         [&] { part = carrier_->split(members); });
  return part;
}

LOCKSTEP_INLINE void GroupLink::carry(const Call& call, Operands& operands, const Done& failed) {
  try {
    if (const auto& stream = operands.stream()) {
      carrier_->run_on(*stream, call, operands.inputs(), operands.outputs(), failed);
    } else {
      carrier_->run(call, operands.inputs(), operands.outputs());
    }
  } catch (...) {
    if (carrier_->buffers_in_flight()) operands.leak();
    throw;
  }
}

LOCKSTEP_INLINE GroupState::GroupState(std::unique_ptr<Carrier>&& carrier,
                                       std::shared_ptr<CommunicationThread> thread, Device device,
                                       GroupWatch watch)
    : thread_(std::move(thread)),
      rank_(carrier->rank()),
      size_(carrier->size()),
      device_(device),
      link_(std::make_shared<GroupLink>(std::move(carrier), *thread_, std::move(watch))) {}

LOCKSTEP_INLINE GroupState::~GroupState() {
  if (lockstep::detail::forked()) {
    link_->abandon();
    return;
  }
  auto end = [link = std::move(link_)]() mutable noexcept { link.reset(); };
  try {
    if (!thread_->run_here(end)) thread_->issue(CommunicationThread::Task(std::move(end)));
  } catch (const std::exception&) {
    // No memory, or no thread: the carrier ends with the group's last operation, or here.
  }
}

LOCKSTEP_INLINE void GroupState::leave(const std::exception_ptr& error) noexcept {
  if (lockstep::detail::forked()) return;
  link_->break_off(error);
  thread_->drain();
  thread_->between_operations([&] { link_->leave(error); });
}

LOCKSTEP_INLINE Work GroupState::collective(const Call& call, const Parts& reads,
                                            const Parts& writes, Execution execution) {
  Work work;
  issuing([&] {
    Operands operands(reads.tensors, reads.count, writes.tensors, writes.count);
    const bool on_gpu = operands.gpu().has_value();
    Completion completion;
    work = completion.work();
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

LOCKSTEP_INLINE Work GroupState::message(const Message& message, const Tensor& tensor) {
  Work work;
  const bool sends = message.sends;
  const bool to_itself = sends && message.peer == rank_;
  issuing([&] {
    const Tensor sent = to_itself ? copy_of(tensor) : tensor;
    const std::span<const Tensor> one(&sent, 1);
    const std::span<const Tensor> none;
    auto operands = std::make_shared<Operands>(sends ? one : none, 1, sends ? none : one, 1);
    Completion completion;
    work = completion.work();
    Done done = [operands, completion](std::exception_ptr error) {
      const bool taken = !error;
      try {
        if (taken) operands->finish(completion.state());
      } catch (...) {
        error = std::current_exception();
      }
      // On the host a message that was not taken may use its memory as long as the carrier keeps
      // `done`.
      if (taken || operands->stream()) operands->release();
      completion.finish(std::move(error));
    };
    thread_->issue(CommunicationThread::Task(
        [link = link_, message, operands = std::move(operands), done = std::move(done)]() noexcept {
          link->start(message, *operands, done);
        }));
  });
  return to_itself ? Work() : work;
}

LOCKSTEP_INLINE std::shared_ptr<GroupState> GroupState::split(const std::vector<int>& members) {
  std::unique_ptr<Carrier> part;
  std::exception_ptr error;
  issuing([&] {
    thread_->issue(CommunicationThread::Task([&]() noexcept {
      try {
        part = link_->split(members);
      } catch (...) {
        error = std::current_exception();
      }
    }));
  });
  thread_->drain();
  if (error) std::rethrow_exception(error);
  if (!part) return nullptr;
  std::shared_ptr<GroupState> result;
  issuing([&] {
    part->alone([&] {
      GroupWatch watches = watch().part(members);
      result = std::make_shared<GroupState>(std::move(part), thread_, device_, std::move(watches));
    });
  });
  return result;
}

}  // namespace lockstep::distributed::detail
