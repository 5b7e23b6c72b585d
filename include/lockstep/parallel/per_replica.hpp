// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/parallel/replication_callback.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

// State of a module that every replica has for itself and keeps from one forward to the next: a
// counter, a cache, running statistics. In forward `*state` is the replica's own; in the module
// itself, and where there are no replicas, it is replica 0's.
//
// `merge` brings two replicas' values together; without it replica 0's is what merged() gives. A
// replica begins with the initial value. Copies of the module share the state, as they share
// parameters.
//
// **Torch counterpart.** None: what a replica of torch's writes into itself is lost.
// **Threads and exceptions.** Each replica uses its own value; values, merged and reset are for
// when none runs.
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

  explicit PerReplica(T initial = T(), Merge merge = {})
      : shared_(std::make_shared<Shared>(Shared{initial, std::move(merge), {initial}})) {}

  T& operator*() const { return shared_->values[replica_]; }
  T* operator->() const { return &**this; }

  // The values of all replicas that there have been, in their order.
  std::vector<T> values() const { return {shared_->values.begin(), shared_->values.end()}; }

  T merged() const {
    T result = shared_->values.front();
    if (!shared_->merge) return result;
    for (std::size_t i = 1; i < shared_->values.size(); ++i) {
      result = shared_->merge(std::as_const(result), std::as_const(shared_->values[i]));
    }
    return result;
  }

  // Every replica begins with the initial value again.
  void reset() const { shared_->values.assign(1, shared_->initial); }

  template <class Self, class Visitor>
  static void visit_members(Self& /*self*/, Visitor&& /*visit*/) {}
  void data_parallel_replicate(const std::shared_ptr<CallbackContext>& /*context*/,
                               std::size_t copy_id) {
    replica_ = copy_id;
    while (shared_->values.size() <= copy_id) shared_->values.push_back(shared_->initial);
  }

 private:
  struct Shared {
    const T initial;
    const Merge merge;
    std::deque<T> values;  // by replica; stays where it is while it grows
  };

  std::shared_ptr<Shared> shared_;
  std::size_t replica_ = 0;
};

}  // namespace lockstep
