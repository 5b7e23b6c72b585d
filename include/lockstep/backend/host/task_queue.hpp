// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A move-only callable without arguments, kept in place up to kInline bytes: an operation on a
// stream is a few pointers and sizes, and queueing it should not allocate.
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
      using Owner = std::unique_ptr<Boxed<Stored>>;
      ::new (static_cast<void*>(buffer_))
          Owner(std::make_unique<Boxed<Stored>>(Boxed<Stored>{std::forward<F>(function)}));
      operations_ = &kOperations<Owner>;
    }
  }

  // `function(count, bytes)` with the `size` bytes copied: what a kernel of any functor is, at no
  // cost in code for each.
  using Function = void (*)(std::size_t count, const void* bytes);
  static Task of_bytes(Function function, std::size_t count, const void* bytes, std::size_t size) {
    if (size <= sizeof(InPlace::bytes)) {
      InPlace task{function, count, {}};
      std::memcpy(task.bytes, bytes, size);
      return Task(task);
    }
    auto copy = std::make_unique<Unit[]>((size + sizeof(Unit) - 1) / sizeof(Unit));
    std::memcpy(copy.get(), bytes, size);
    return Task(OnHeap{function, count, std::move(copy)});
  }

  Task(Task&& other) noexcept : operations_(std::exchange(other.operations_, nullptr)) {
    take(other);
  }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      operations_ = std::exchange(other.operations_, nullptr);
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  void operator()() { operations_->call(buffer_); }

 private:
  static constexpr std::size_t kInline = 104;

  using Unit = std::max_align_t;
  struct InPlace {
    Function function;
    std::size_t count;
    alignas(Unit) unsigned char bytes[80];
    void operator()() const { function(count, bytes); }
  };
  struct OnHeap {
    Function function;
    std::size_t count;
    std::unique_ptr<Unit[]> bytes;
    void operator()() const { function(count, bytes.get()); }
  };
  template <class F>
  struct Boxed {
    F function;
    void operator()() { function(); }
  };
  // Null for what is copied as bytes and needs no destruction, as most operations are.
  struct Operations {
    void (*call)(void*);
    void (*relocate)(void* to, void* from) = nullptr;
    void (*destroy)(void*) = nullptr;
  };
  template <class F>
  static void call(F& function) {
    function();
  }
  template <class F>
  static void call(std::unique_ptr<F>& function) {
    (*function)();
  }
  template <class F>
  static constexpr Operations operations_of() {
    Operations operations{[](void* at) { call(*static_cast<F*>(at)); }};
    if constexpr (!std::is_trivially_copyable_v<F>) {
      operations.relocate = [](void* to, void* from) {
        ::new (to) F(std::move(*static_cast<F*>(from)));
        static_cast<F*>(from)->~F();
      };
      operations.destroy = [](void* at) { static_cast<F*>(at)->~F(); };
    }
    return operations;
  }
  template <class F>
  static constexpr Operations kOperations = operations_of<F>();

  // After `operations_` has come over from `other`.
  void take(Task& other) {
    if (!operations_) return;
    if (operations_->relocate) {
      operations_->relocate(buffer_, other.buffer_);
    } else {
      std::memcpy(buffer_, other.buffer_, kInline);
    }
  }

  void reset() {
    const Operations* operations = std::exchange(operations_, nullptr);
    if (operations && operations->destroy) operations->destroy(buffer_);
  }

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) unsigned char buffer_[kInline];
};

// A ring of tasks, first in first out, that grows and never shrinks. Not synchronised: its stream
// guards it.
class TaskQueue {
 public:
  bool empty() const { return count_ == 0; }

  void push(Task task) {
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
