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

// Averages the gradients that backward leaves in `parameters` over the ranks of a group.
//
// A hook on each parameter copies its gradient to its place in a bucket, unless it is there
// already, and makes `grad` a view of that place. A full bucket is launched once all before it have
// been, so that collectives have the same order on every rank. The first gradient of a pass
// registers a callback for the pass's end, which waits for the buckets.
//
// A rank that finds an error in its own gradients first launches all buckets, so that the others do
// not wait for it, then throws. After any exception the Reducer is unusable, and drops gradients
// that may still be written to: the other ranks may have gone on.
//
// In a `join`, each pass announces itself before its first collective, and a rank that has joined
// runs the same collectives with zero gradients.
//
// Threads: the lane of the parameters' device runs the hooks, backward's caller the callback; the
// engine orders them. `mutex_` only serves passes that overlap, which are an error. It is recursive
// because a communication hook may ask for the logging data.
class Reducer : public std::enable_shared_from_this<Reducer>, NonCopyable {
 public:
  Reducer(const std::vector<NamedParameter>& parameters, distributed::ProcessGroup group,
          const DistributedDataParallelOptions& options);
  ~Reducer();

  // Registers the hooks. Called once, when a shared_ptr owns this.
  void attach();

  // Whether backward passes are synchronised. Set by the thread that calls forward and backward.
  bool& synchronizes() { return synchronizes_; }

  void register_comm_hook(CommHook hook);

  // The phases that ranks that have joined are told to take part in.
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
  // The place in the join. For the thread that calls begin_join and end_join.
  const std::optional<JoinContext>& join() const { return join_; }

  // Runs the collectives of the other ranks' pass on a rank that has joined, whose gradients become
  // the others' mean.
  void shadow(const JoinExchange& exchange);

  // Throws if an earlier exception has left the ranks out of step. In grad mode, also throws a
  // ModuleError if the module has a trained parameter that is not in `claims` and would not be
  // averaged.
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

  // Runs `body`. An exception makes the Reducer unusable.
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

  // Gives up a pass before its end: some buckets may be in flight, others are never launched.
  void abandon() noexcept;

  // The memory where backward may write parameter i's gradient in the pass that is being reduced.
  // Undefined until the pass has begun: an earlier one may still own the buckets.
  Tensor gradient_slot(std::size_t i);

  void on_gradient(std::size_t i);

  // Begins a pass, at its first gradient.
  void begin(BackwardPass& pass);

  void prepare();

  // Puts the parameter's gradient, or its substitute, into its bucket, and launches full buckets.
  void mark(std::size_t i, State state);

  // Reduces what is left at the end of the pass.
  void finish();

  // Waits for a pass's buckets, all of which have been launched, and stores their gradients.
  // `exchange` tells which ranks contribute; `missing` lists parameters that should have got a
  // gradient.
  void reduce(const JoinExchange& exchange, bool joined,
              const std::vector<std::size_t>& missing = {});

  // Counts, for each parameter, the ranks that have a gradient for it.
  std::vector<std::int32_t> count_ranks_that_used();

  // Throws if this rank misses gradients or, if the ranks have counted, on all ranks if any misses
  // some (`somewhere`), so that none goes on to a collective alone.
  void check_missing(const std::vector<std::size_t>& missing, bool somewhere, bool joined) const;

  // A text that tells which parameters got no gradient on which ranks. All ranks call it.
  std::string where_missing(bool joined) const;

  [[noreturn]] void fail_unexpected(std::size_t i) const;

  // Notes in the log and in the usage which parameters the pass has used, and ends it.
  void end_pass(bool first, bool joined, bool missing_somewhere);

  // Makes new buckets, in the order in which the root's gradients became ready and without
  // parameters that no rank uses.
  void rebuild(int root);

  distributed::ProcessGroup group_;
  const std::vector<std::size_t> limits_;  // of the buckets, in bytes
  // If false, buckets are rebuilt after the first pass, in the order in which gradients became
  // ready; until then there is only one, unless the user has set the sizes.
  const bool find_unused_;
  const bool static_graph_;
  bool synchronizes_ = true;

  mutable std::recursive_mutex mutex_;  // guards all below
  CommHook comm_hook_;
  const std::unique_ptr<ReducerBuckets> buckets_;
  ReducerUsage usage_;
  std::vector<RemovableHandle> hooks_;  // one for each parameter
  std::uint64_t pass_ = 0;              // the one that is being reduced; 0: none
  std::size_t next_bucket_ = 0;         // the first that it has not launched
  const JoinExchange everyone_;         // used outside a join
  std::optional<JoinContext> join_;
  JoinAnnouncement announcement_;  // of the last pass within a join
  Clock::time_point began_;
  std::string failure_;  // why this is unusable; empty: it is usable
  DDPLoggingData log_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer.ipp>
#endif
