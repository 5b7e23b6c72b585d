// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A move-only callable without arguments. Up to kInline bytes are stored inside, since an operation
// on a stream is a few pointers and sizes, and queueing it should not allocate.
class Task {
 public:
  Task() = default;

  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task>) explicit Task(F&& function) {
    using Stored = std::remove_cvref_t<F>;
    if constexpr (sizeof(Stored) <= kInline && alignof(Stored) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Stored>) {
      ::new (static_cast<void*>(buffer_)) Stored(std::forward<F>(function));
      operations_ = &kOperations<Stored>;
    } else {
      *this = Task([held = std::make_unique<Stored>(std::forward<F>(function))] { (*held)(); });
    }
  }

  // A task that calls `function(count, bytes)` with a copy of the `size` bytes. Kernels are queued
  // like this, so that no code is compiled per functor.
  using Function = void (*)(std::size_t count, const void* bytes);
  static Task of_bytes(Function function, std::size_t count, const void* bytes, std::size_t size) {
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

  Task(Task&& other) noexcept : operations_(std::exchange(other.operations_, nullptr)) {
    if (operations_) operations_->relocate(buffer_, other.buffer_);
  }
  Task& operator=(Task&& other) noexcept {
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~Task() {
    if (operations_) operations_->destroy(buffer_);
  }

  void operator()() { operations_->call(buffer_); }

 private:
  static constexpr std::size_t kInline = 104;

  struct Operations {
    void (*call)(void*);
    void (*relocate)(void* to, void* from);
    void (*destroy)(void*);
  };
  template <class F>
  static constexpr Operations kOperations{[](void* at) { (*static_cast<F*>(at))(); },
                                          [](void* to, void* from) {
                                            ::new (to) F(std::move(*static_cast<F*>(from)));
                                            static_cast<F*>(from)->~F();
                                          },
                                          [](void* at) { static_cast<F*>(at)->~F(); }};

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) unsigned char buffer_[kInline];
};

// A first-in first-out ring of tasks that grows and never shrinks. Its stream guards it.
class TaskQueue {
 public:
  bool empty() const { return count_ == 0; }

  // If memory runs out, it throws and the caller still has the task.
  void push(Task&& task) {
    if (count_ == ring_.size()) grow();
    ring_[(head_ + count_) % ring_.size()] = std::move(task);
    ++count_;
  }

  Task pop() {
    Task task = std::move(ring_[head_]);
    head_ = (head_ + 1) % ring_.size();
    --count_;
    return task;
  }

 private:
  void grow() {
    std::vector<Task> larger(ring_.empty() ? 16 : 2 * ring_.size());
    for (std::size_t i = 0; i < count_; ++i)
      larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
    ring_.swap(larger);
    head_ = 0;
  }

  std::vector<Task> ring_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace lockstep::detail
