// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/task_queue.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE Task Task::of_bytes(Function function, std::size_t count, const void* bytes,
                                    std::size_t size) {
  if (size <= sizeof(InPlace::bytes)) {
    InPlace task{function, count, {}};
    std::memcpy(task.bytes, bytes, size);
    return Task(task);
  }
  auto copy = std::make_unique<Unit[]>((size + sizeof(Unit) - 1) / sizeof(Unit));
  std::memcpy(copy.get(), bytes, size);
  return Task(OnHeap{function, count, std::move(copy)});
}

LOCKSTEP_INLINE Task& Task::operator=(Task&& other) noexcept {
  if (this != &other) {
    reset();
    operations_ = std::exchange(other.operations_, nullptr);
    take(other);
  }
  return *this;
}

LOCKSTEP_INLINE void Task::take(Task& other) {
  if (!operations_) return;
  if (operations_->relocate) {
    operations_->relocate(buffer_, other.buffer_);
  } else {
    std::memcpy(buffer_, other.buffer_, kInline);
  }
}

LOCKSTEP_INLINE void Task::reset() {
  const Operations* operations = std::exchange(operations_, nullptr);
  if (operations && operations->destroy) operations->destroy(buffer_);
}

LOCKSTEP_INLINE void TaskQueue::push(Task&& task) {
  if (count_ == ring_.size()) grow();
  ring_[(head_ + count_) % ring_.size()] = std::move(task);
  ++count_;
}

LOCKSTEP_INLINE Task TaskQueue::pop() {
  Task task = std::move(ring_[head_]);
  head_ = (head_ + 1) % ring_.size();
  --count_;
  return task;
}

LOCKSTEP_INLINE void TaskQueue::grow() {
  std::vector<Task> larger(ring_.empty() ? 16 : 2 * ring_.size());
  for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
  ring_.swap(larger);
  head_ = 0;
}

}  // namespace lockstep::detail
