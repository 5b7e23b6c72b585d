// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/ddp/distributed_logging.hpp>
#include <lockstep/parallel/ddp/reducer_claims.hpp>
#include <lockstep/parallel/ddp/reducer_usage.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

class ReducerBuckets;

// Makes the gradients that backward leaves in `parameters` their mean over the ranks of a group.
//
// A hook on each parameter notices its gradient, wherever the backward pass comes from: it copies
// the gradient to its place in a bucket, unless it is there, and makes `grad` the view of it. A
// bucket that is full is handed to the group once all before it are, so that the order of the
// collectives is the same on every rank; backward goes on meanwhile. The first gradient of a pass
// asks for a callback at the pass's end, which waits for the buckets.
//
// What a rank finds wrong with its own gradients at the end of a pass it reports after all buckets
// have been launched, so that the others do not wait for it. A Reducer that has thrown, or whose
// backward has, is of no further use: the other ranks may have gone on. It does not wait for what
// is in flight then, as nobody knows whether that ever ends; the gradients concerned are dropped.
//
// Within a `join`, each pass announces itself before its first collective, and a rank that has
// joined goes through the same collectives with gradients of zero.
//
// Threads: the lane of the parameters' device runs the hooks, the caller of backward the callback;
// the engine orders them. `mutex_` is there for passes that overlap against the rules, and get an
// error. It is recursive, as a communication hook may ask for the logging data.
class Reducer : public std::enable_shared_from_this<Reducer>, NonCopyable {
 public:
  Reducer(const std::vector<NamedParameter>& parameters, distributed::ProcessGroup group,
          const DistributedDataParallelOptions& options);
  ~Reducer();

  // Registers the hooks; called once, when a shared_ptr owns this.
  void attach();

  // Whether backward passes are synchronised. The thread that calls forward and backward sets it.
  bool& synchronizes() { return synchronizes_; }

  void register_comm_hook(CommHook hook);

  // What ranks that have joined are told to take part in.
  enum JoinPhase { kForward, kBackward };
  // From here to end_join, passes are announced.
  void begin_join(const JoinContext& context) {
    const std::lock_guard lock(mutex_);
    check<ValueError>(!join_, "join: this DistributedDataParallel is in a join already");
    join_.emplace(context);
  }
  void end_join() {
    const std::lock_guard lock(mutex_);
    join_.reset();
  }

  // Runs the collectives of another rank's pass on one that has joined, whose gradients become the
  // others' mean.
  void shadow(const JoinExchange& exchange);

  // Throws if the ranks cannot be in step any more. Where grad mode is on, also throws a
  // ModuleError if the module has a parameter that is trained but not in `claims`, whose gradient
  // would be each rank's own.
  void begin_forward(const TensorWalk& model, const ReducerClaims& claims);

  void add_forward_time(std::chrono::nanoseconds time) {
    const std::lock_guard lock(mutex_);
    log_.forward_time += time;
  }
  DDPLoggingData logging_data() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using State = ReducerUsage::State;

  // Runs `body`; what it throws makes the Reducer unusable.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      if (failure_.empty()) failure_ = error.what();
      throw;
    } catch (...) {
      if (failure_.empty()) failure_ = "DistributedDataParallel: an earlier backward has failed";
      throw;
    }
  }

  class PassEnd;

  // Leaves a pass that has not come to its end: some buckets may be in flight, others never will.
  void abandon() noexcept;

  // Where backward may write parameter i's gradient of the pass that is being reduced. Undefined
  // until the pass has begun: an earlier one may still own the buckets.
  Tensor gradient_slot(std::size_t i);

  void on_gradient(std::size_t i);

  // Begins a pass, at its first gradient.
  void begin(BackwardPass& pass);

  void prepare();

  // Puts the parameter's gradient, or what stands for it, into its bucket, and launches the buckets
  // that are full.
  void mark(std::size_t i, State state);

  // Reduces what is left at the end of the pass.
  void finish();

  // Waits for the buckets of a pass, which have all been launched, and settles their gradients.
  // `exchange` tells which ranks contribute; `missing` are the parameters without the gradients
  // that they should have got.
  void reduce(const JoinExchange& exchange, bool joined,
              const std::vector<std::size_t>& missing = {});

  // For each parameter, how many ranks have a gradient for it.
  std::vector<std::int32_t> count_ranks_that_used();

  // Throws if this rank misses gradients or, on every rank alike, if the ranks have counted and
  // some rank does (`somewhere`): so none goes on to a collective alone.
  void check_missing(const std::vector<std::size_t>& missing, bool somewhere, bool joined) const;

  // A text that says which parameters got no gradient on which ranks. All ranks call it.
  std::string where_missing(bool joined) const;

  [[noreturn]] void fail_unexpected(std::size_t i) const;

  // Notes in the log and in the usage what the pass has used, and ends it.
  void end_pass(bool first, bool joined, bool missing_somewhere);

  // Makes the buckets anew, in the order in which the root's gradients became ready and without
  // those that nobody uses.
  void rebuild(int root);

  distributed::ProcessGroup group_;
  const std::vector<std::size_t> limits_;  // of the buckets, in bytes
  // If false, buckets are made anew after the first pass, in the order in which gradients became
  // ready; until then there is one bucket, unless the user has said how large each is to be.
  const bool find_unused_;
  const bool static_graph_;
  bool synchronizes_ = true;

  mutable std::recursive_mutex mutex_;  // guards all below
  CommHook comm_hook_;
  const std::unique_ptr<ReducerBuckets> buckets_;
  ReducerUsage usage_;
  std::vector<RemovableHandle> hooks_;  // one for each parameter
  std::uint64_t pass_ = 0;              // the one that is being reduced, 0 for none
  std::size_t next_bucket_ = 0;         // the first that has not been launched in it
  const JoinExchange everyone_;         // outside of a join
  std::optional<JoinContext> join_;
  JoinAnnouncement announcement_;  // of the last pass within a join
  Clock::time_point began_;
  std::string failure_;  // why this is unusable
  DDPLoggingData log_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer.ipp>
#endif
