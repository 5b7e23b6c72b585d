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
  using Unit = std::max_align_t;
  struct alignas(Unit) Few {
    unsigned char bytes[80];
  };
  if (size <= sizeof(Few)) {
    Few few{};
    std::memcpy(few.bytes, bytes, size);
    return Task([function, count, few] { function(count, few.bytes); });
  }
  auto many = std::make_unique<Unit[]>((size + sizeof(Unit) - 1) / sizeof(Unit));
  std::memcpy(many.get(), bytes, size);
  return Task([function, count, many = std::move(many)] { function(count, many.get()); });
}

LOCKSTEP_INLINE Task& Task::operator=(Task&& other) noexcept {
  if (this != &other) {
    reset();
    take(other);
  }
  return *this;
}

LOCKSTEP_INLINE void Task::take(Task& other) {
  operations_ = std::exchange(other.operations_, nullptr);
  if (operations_) operations_->relocate(buffer_, other.buffer_);
}

LOCKSTEP_INLINE void Task::reset() {
  const Operations* operations = std::exchange(operations_, nullptr);
  if (operations) operations->destroy(buffer_);
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
