// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/clone.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// State of a module that every replica has for itself and keeps from one forward to the next: a
// counter, a cache, running statistics. In forward `*state` is the replica's own value; outside of
// replicas it is replica 0's.
//
// merged() combines the replicas' values two at a time by `merge`; without `merge` it returns
// replica 0's. Every replica starts with the initial value, which `merge` must treat as neutral.
// Each replica has its own copies of tensors in a value; neither replicate nor `to` moves them.
// Copies of the module share the state, as they share parameters; a clone has its own.
//
// **Torch counterpart.** None: what a torch replica writes into itself is lost.
// **Threads and exceptions.** Each replica uses its own value. Call values, merged and reset while
// no replica runs. Run only one of several modules that share the state at a time.
// **Example.**
//   struct Net {
//     ls::PerReplica<std::int64_t> rows{0, std::plus<>{}};
//     ls::Tensor forward(const ls::Tensor& x) { *rows += x.size(0); return x; }
//   };
//   …
//   model.module().rows.merged();  // all rows that went through
template <class T>
class PerReplica {
 public:
  using Merge = std::function<T(const T&, const T&)>;

  PerReplica() : PerReplica(T()) {}
  explicit PerReplica(T initial, Merge merge = {})
      : shared_(std::make_shared<Shared>(std::move(initial), std::move(merge))),
        slot_(&shared_->slots.front()) {}
  // No move: a moved-from object would have no value.
  PerReplica(const PerReplica&) = default;
  PerReplica& operator=(const PerReplica&) = default;
  ~PerReplica() = default;

  T& operator*() const { return slot_->value; }
  T* operator->() const { return &slot_->value; }

  // The values of all replicas so far, in the order in which they were first made.
  std::vector<T> values() const {
    std::vector<T> result;
    for (const Slot& slot : shared_->slots) result.push_back(slot.value);
    return result;
  }

  T merged() const {
    T result = shared_->slots.front().value;
    if (!shared_->merge) return result;
    for (std::size_t i = 1; i < shared_->slots.size(); ++i) {
      result = shared_->merge(std::as_const(result), std::as_const(shared_->slots[i].value));
    }
    return result;
  }

  // Gives every replica the initial value again.
  void reset() const {
    for (Slot& slot : shared_->slots) slot.value = Shared::copy_of(shared_->initial);
  }

  template <class Self, class Visitor>
  static void visit_members(Self& /*self*/, Visitor&& /*visit*/) {}
  // replicate calls this on a replica's copy. Replica 0 keeps referring to the original's value,
  // others get their own.
  void data_parallel_replicate(const std::shared_ptr<CallbackContext>& /*context*/,
                               std::size_t copy_id) {
    ++depth_;
    if (copy_id > 0) slot_ = shared_->slot_of(slot_, depth_, copy_id);
  }
  // lockstep::clone calls this: it makes this object refer to a copy of all replicas' values, in
  // which tensors are those of `tensors`. `states` maps states to their copies, so that objects
  // that shared one still do.
  void unshare(std::map<const void*, std::shared_ptr<void>>& states,
               detail::TensorCopies& tensors) {
    std::shared_ptr<void>& copy = states[shared_.get()];
    if (!copy) copy = shared_->clone(tensors);
    const auto own = std::static_pointer_cast<Shared>(copy);
    slot_ = own->slot_like(*shared_, slot_);
    shared_ = own;
  }

 private:
  // Has its own cache line, since the replicas' threads write at once.
  struct alignas(64) Slot {
    T value;
  };

  // All replicas' values, at stable addresses. `mutex` guards adding slots.
  struct Shared {
    Shared(T first, Merge how) : initial(copy_of(first)), merge(std::move(how)) {
      slots.push_back({copy_of(first)});
    }

    Slot* slot_of(Slot* original, std::size_t depth, std::size_t copy_id) {
      const std::lock_guard lock(mutex);
      Slot*& slot = slot_of_copy[{original, depth, copy_id}];
      if (!slot) slot = &slots.emplace_back(Slot{copy_of(initial)});
      return slot;
    }

    std::shared_ptr<Shared> clone(detail::TensorCopies& tensors) const {
      const auto copy = std::make_shared<Shared>(on_copies(initial, tensors), merge);
      copy->slots.clear();
      for (const Slot& slot : slots) copy->slots.push_back({on_copies(slot.value, tensors)});
      for (const auto& [key, slot] : slot_of_copy) {
        if (!slot) continue;
        const auto& [original, depth, copy_id] = key;
        copy->slot_of_copy[{copy->slot_like(*this, original), depth, copy_id}] =
            copy->slot_like(*this, slot);
      }
      return copy;
    }

    static T copy_of(const T& value) {
      detail::TensorCopies tensors;
      return on_copies(value, tensors);
    }

    static T on_copies(T value, detail::TensorCopies& tensors) {
      if constexpr (detail::nested::holds_tensors<T>) {
        const auto replace = [&tensors](auto& leaf, const detail::nested::Path&) {
          if constexpr (std::is_same_v<decltype(leaf), Tensor&>) leaf = tensors.of(leaf);
        };
        detail::nested::for_each_leaf(value, detail::nested::Path("value"), replace);
      }
      return value;
    }

    // The slot here that has the index of `slot` in `other`.
    Slot* slot_like(const Shared& other, const Slot* slot) {
      std::size_t place = 0;
      while (&other.slots[place] != slot) ++place;
      return &slots[place];
    }

    const T initial;
    const Merge merge;
    std::mutex mutex;
    std::deque<Slot> slots;
    // Null if copying the initial value threw.
    std::map<std::tuple<Slot*, std::size_t, std::size_t>, Slot*> slot_of_copy;
  };

  std::shared_ptr<Shared> shared_;
  Slot* slot_;
  std::size_t depth_ = 0;  // the number of nested DataParallels that this is a replica of
};

}  // namespace lockstep
