// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/ddp/distributed_logging.hpp>
#include <lockstep/parallel/ddp/reducer.hpp>
#include <lockstep/parallel/ddp/reducer_buckets.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE Reducer::Reducer(const std::vector<NamedParameter>& parameters,
                                 distributed::ProcessGroup group,
                                 const DistributedDataParallelOptions& options)
    : group_(std::move(group)),
      limits_(bucket_limits(options)),
      find_unused_(options.find_unused_parameters && !options.static_graph),
      static_graph_(options.static_graph),
      buckets_(std::make_unique<ReducerBuckets>(
          parameters, !find_unused_ && options.bucket_cap_mb_list.empty()
                          ? std::vector{std::numeric_limits<std::size_t>::max()}
                          : limits_)),
      usage_(parameters.size()),
      everyone_(std::vector<std::int32_t>(static_cast<std::size_t>(group_.size()), 1)) {
  log_.rank = group_.rank();
  log_.world_size = group_.size();
  log_.device = parameters[0].tensor.device();
  log_.num_parameter_tensors = parameters.size();
  for (std::size_t i = 0; i < buckets_->size(); ++i) {
    log_.total_parameter_size_bytes += buckets_->bytes(i);
  }
  log_.initial_bucket_sizes = buckets_->bucket_sizes();
  log_.can_set_static_graph = true;
}

LOCKSTEP_INLINE Reducer::~Reducer() {
  // If memory runs out, a hook stays, and finds that the Reducer is gone.
  (void)first_thrown_by(hooks_, [](const RemovableHandle& hook) { hook.remove(); });
}

LOCKSTEP_INLINE void Reducer::attach() {
  hooks_.reserve(buckets_->size());
  for (std::size_t i = 0; i < buckets_->size(); ++i) {
    const auto on_gradient = [reducer = weak_from_this(), i](const Tensor&) {
      if (const auto self = reducer.lock()) self->on_gradient(i);
    };
    const auto slot = [reducer = weak_from_this(), i] {
      const auto self = reducer.lock();
      return self ? self->gradient_slot(i) : Tensor();
    };
    hooks_.push_back(add_leaf_hook(buckets_->parameter(i).impl(), on_gradient, slot));
  }
}

LOCKSTEP_INLINE void Reducer::register_comm_hook(CommHook hook) {
  const std::lock_guard lock(mutex_);
  check<ValueError>(!comm_hook_,
                    "register_comm_hook or register_builtin_comm_hook can only be called once.");
  check<ValueError>(static_cast<bool>(hook), "register_comm_hook: the hook is empty");
  check<ValueError>(pass_ == 0, "register_comm_hook: called during backward");
  std::vector<std::size_t> sparse;
  for (std::size_t i = 0; i < buckets_->size(); ++i) {
    if (buckets_->is_sparse(i)) sparse.push_back(i);
  }
  check<ValueError>(sparse.empty(),
                    "register_comm_hook: a hook reduces buckets of dense gradients, but those of "
                    "parameters ",
                    buckets_->names(sparse), " are sparse");
  comm_hook_ = std::move(hook);
}

LOCKSTEP_INLINE void Reducer::shadow(const JoinExchange& exchange) {
  const std::lock_guard lock(mutex_);
  const NoGradGuard guard;  // as in backward
  check<AutogradError>(failure_.empty(), failure_);
  guarded([&] {
    prepare();
    for (std::size_t i = 0; i < buckets_->size(); ++i) buckets_->parameter(i).set_grad({});
    for (std::size_t i = 0; i < buckets_->size(); ++i) mark(i, State::unused);
    usage_.end_pass();
    reduce(exchange, true);
  });
}

LOCKSTEP_INLINE void Reducer::begin_forward(const TensorWalk& model, const ReducerClaims& claims) {
  const std::lock_guard lock(mutex_);
  check<AutogradError>(failure_.empty(), failure_);
  if (!is_grad_enabled()) return;
  model.for_each([&claims](const nested::Path& path, const Tensor& tensor, TensorKind kind) {
    const bool trained =
        kind == TensorKind::parameter && tensor.defined() && tensor.requires_grad();
    if (!trained || claims.has(tensor)) return;
    fail<ModuleError>("DistributedDataParallel: parameter \"", path.name(),
                      "\" was replaced, added or unfrozen after the DistributedDataParallel was "
                      "made, and its gradient would remain each rank's own: change the module "
                      "before, or wrap it again");
  });
}

LOCKSTEP_INLINE void Reducer::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  if (pass_ == 0) return;
  pass_ = 0;
  buckets_->drop_full();
  if (!failure_.empty()) return;
  try {
    failure_ =
        str("DistributedDataParallel: Expected to have finished reduction in the prior iteration "
            "before starting a new one: on rank ",
            group_.rank(), " a backward has thrown, so that the ranks are out of step");
  } catch (...) {
    failure_ = "backward failed";  // short enough to need no memory, of which there is none
  }
}

LOCKSTEP_INLINE Tensor Reducer::gradient_slot(std::size_t i) {
  const std::lock_guard lock(mutex_);
  const bool may = pass_ == current_backward_pass->number() && usage_.state(i) == State::waiting;
  return may ? buckets_->gradient_slot(i) : Tensor();
}

LOCKSTEP_INLINE void Reducer::on_gradient(std::size_t i) {
  const std::lock_guard lock(mutex_);
  // A leaf frozen after forward got nothing, unless a hook froze it.
  const Tensor& parameter = buckets_->parameter(i);
  const bool used = parameter.requires_grad() || parameter.grad().defined();
  if (used) usage_.note_gradient(i);
  if (!synchronizes_) {
    // A parameter in no bucket would keep this rank's own gradient.
    if (static_graph_ && used && !usage_.used_anywhere(i)) {
      guarded([this, i] { fail_unexpected(i); });
    }
    return;
  }
  check<AutogradError>(failure_.empty(), failure_);
  guarded([this, i, used] {
    if (pass_ == 0) begin(*current_backward_pass);
    check<AutogradError>(pass_ == current_backward_pass->number(),
                         "DistributedDataParallel: another backward through the same parameters "
                         "is still running");
    if (usage_.state(i) != State::waiting) fail_unexpected(i);
    mark(i, used || !find_unused_ ? State::ready : State::unused);
  });
}

// Belongs to the callback at the end of a pass. Tells the Reducer, if it still exists, that the
// pass has reached its end or, if the pass fails and the callback is dropped, that it never will.
class Reducer::PassEnd : NonCopyable {
 public:
  explicit PassEnd(std::weak_ptr<Reducer> owner) : owner_(std::move(owner)) {}
  ~PassEnd() {
    if (const auto self = owner_.lock()) self->abandon();
  }
  void reached() const {
    if (const auto self = owner_.lock()) self->finish();
  }

 private:
  const std::weak_ptr<Reducer> owner_;
};

LOCKSTEP_INLINE void Reducer::begin(BackwardPass& pass) {
  check<AutogradError>(
      !is_grad_enabled(),
      "DistributedDataParallel: backward with create_graph = true would leave gradients whose "
      "own gradients are not reduced: use autograd::grad for the inner derivative, or no_sync");
  const Device device = buckets_->parameter(0).device();
  const Device first = pass.claim_collectives(device);
  check<AutogradError>(first == device, "DistributedDataParallel: one backward reaches a model on ",
                       first, " and one on ", device,
                       ", which work side by side, so that the ranks would not reduce their "
                       "gradients in one order: call backward for each by itself");
  prepare();
  pass.queue_callback([end = std::make_shared<PassEnd>(weak_from_this())] { end->reached(); });
  pass_ = pass.number();
  pass.offer_gradient_slots();
  if (join_) {
    announcement_ = join_->announce(kBackward);
    // An error that ends all ranks must be thrown here, before this rank begins a collective to
    // which the others, who know already, never come.
    if (join_->options().throw_on_early_termination) (void)announcement_.get();
  }
  for (std::size_t i = 0; i < buckets_->size(); ++i) {
    const bool known_unused =
        find_unused_ ? !pass.reaches(buckets_->parameter(i))
                     : static_graph_ && log_.num_iterations > 0 && !usage_.used_at_first(i);
    if (known_unused) mark(i, State::unused);
  }
}

LOCKSTEP_INLINE void Reducer::prepare() {
  buckets_->prepare();
  usage_.begin_pass();
  began_ = Clock::now();
  next_bucket_ = 0;
}

LOCKSTEP_INLINE void Reducer::mark(std::size_t i, State state) {
  usage_.mark(i, state);
  ReducerBuckets::Bucket* const bucket = buckets_->bucket_of(i);
  if (!bucket) return;
  ReducerBuckets::move_to_current_stream(*bucket);
  if (state == State::unused) {
    buckets_->put_substitute(i);
  } else if (buckets_->take_gradient(i)) {
    ++log_.num_gradient_copies;
  }
  --bucket->pending;
  auto& all = buckets_->buckets();
  while (next_bucket_ < all.size() && all[next_bucket_].pending == 0) {
    ReducerBuckets::Bucket& full = all[next_bucket_++];
    const bool last = next_bucket_ == all.size() &&
                      (!current_backward_pass || current_backward_pass->at_last_node());
    ++log_.num_all_reduces;
    buckets_->launch(full, last ? group_.inline_if_idle() : group_, comm_hook_);
  }
}

LOCKSTEP_INLINE void Reducer::finish() {
  const std::lock_guard lock(mutex_);
  guarded([this] {
    const std::vector<std::size_t> missing = usage_.in_state(State::waiting);
    for (const std::size_t i : missing) mark(i, State::unused);
    reduce(join_ ? announcement_.get() : everyone_, false, missing);
  });
}

LOCKSTEP_INLINE void Reducer::reduce(const JoinExchange& exchange, bool joined,
                                     const std::vector<std::size_t>& missing) {
  const Clock::time_point last_gradient = Clock::now();
  const bool first = log_.num_iterations == 0;
  const std::vector<std::int32_t> ranks =
      find_unused_ || first ? count_ranks_that_used() : std::vector<std::int32_t>();
  const bool mean_of_active =
      join_ && !comm_hook_ && !join_->options().divide_by_initial_world_size;
  buckets_->wait_for_all(mean_of_active ? static_cast<double>(exchange.size()) / exchange.active()
                                        : 1);
  buckets_->give_back();
  pass_ = 0;
  log_.backward_time += last_gradient - began_;
  log_.wait_time += Clock::now() - last_gradient;

  const bool missing_somewhere =
      any_of(ranks, [&exchange](std::int32_t count) { return count < exchange.active(); });
  check_missing(missing, missing_somewhere, joined);
  usage_.set_used_anywhere(ranks);
  for (const std::size_t i : usage_.in_state(State::unused)) {
    if (buckets_->bucket_of(i)) buckets_->resolve_substitute(i, usage_.used_anywhere(i));
  }
  end_pass(first, joined, missing_somewhere);
  if (first && !find_unused_) rebuild(join_ ? exchange.last_active() : 0);
}

LOCKSTEP_INLINE std::vector<std::int32_t> Reducer::count_ranks_that_used() {
  const Tensor counts = tensor(usage_.used(find_unused_ || static_graph_), log_.device);
  ++log_.num_all_reduces;
  (void)group_.blocking().all_reduce(counts, distributed::ReduceOp::sum);
  return counts.to_vector<std::int32_t>();
}

LOCKSTEP_INLINE void Reducer::check_missing(const std::vector<std::size_t>& missing, bool somewhere,
                                            bool joined) const {
  if (find_unused_ || (static_graph_ && log_.num_iterations == 0)) return;
  const std::string where = somewhere ? where_missing(joined) : std::string();
  const std::string names = buckets_->names(missing);
  const int rank = group_.rank();
  check<AutogradError>(missing.empty() || !static_graph_,
                       "DistributedDataParallel: Your training graph has changed in this "
                       "iteration, e.g., one parameter is used in first iteration, but then got "
                       "unused in the second iteration. this is not compatible with static_graph "
                       "set to True. Parameter indices which did not receive grad for rank ",
                       rank, ": ", names);
  constexpr const char* kUnused =
      "DistributedDataParallel: your module has parameters that were not used in producing loss. ";
  constexpr const char* kRemedy =
      ". If that is meant, set find_unused_parameters; else see to it that all outputs of forward "
      "take part in the loss";
  check<AutogradError>(missing.empty(), kUnused,
                       "Parameter indices which did not receive grad for rank ", rank, ": ", names,
                       kRemedy);
  check<AutogradError>(
      !somewhere, kUnused, joined ? "This rank, " : "All got a gradient on this rank, ", rank,
      joined ? ", has no inputs left; of those that have, " : ", but not on all others: ", where,
      kRemedy);
}

LOCKSTEP_INLINE std::string Reducer::where_missing(bool joined) const {
  const std::size_t parameters = buckets_->size();
  // A rank that has joined owes no gradients.
  const std::vector<std::int32_t> own =
      joined ? std::vector<std::int32_t>(parameters, 1) : usage_.used(false);
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto count = static_cast<std::int64_t>(parameters);
  const Tensor all = zeros({count * group_.size()}, {.dtype = Dtype::i32, .device = log_.device});
  (void)group_.blocking().all_gather_into_tensor(all, tensor(own, log_.device));
  const std::vector<std::int32_t> used = all.to_vector<std::int32_t>();
  std::string text;
  for (std::size_t i = 0; i < parameters; ++i) {
    std::string missed;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (used[r * parameters + i] == 0) missed += str(missed.empty() ? "" : ", ", r);
    }
    if (missed.empty()) continue;
    const bool one = missed.find(',') == std::string::npos;
    text += str(text.empty() ? "" : "; ", "parameter ", buckets_->names({i}), " got none on rank",
                one ? " " : "s ", missed);
  }
  return text;
}

LOCKSTEP_INLINE void Reducer::fail_unexpected(std::size_t i) const {
  check<AutogradError>(usage_.state(i) != State::unused || !static_graph_,
                       "DistributedDataParallel: Your training graph has changed in this "
                       "iteration, e.g., one parameter is unused in first iteration, but then got "
                       "used in the second iteration. this is not compatible with static_graph set "
                       "to True. On rank ",
                       group_.rank(), ", it is parameter ", buckets_->names({i}));
  fail<AutogradError>(
      "DistributedDataParallel: Expected to mark a variable ready only once. On rank ",
      group_.rank(), ", parameter ", buckets_->names({i}),
      " got a gradient after its bucket had been handed over: does an operation call backward "
      "within its own?");
}

LOCKSTEP_INLINE void Reducer::end_pass(bool first, bool joined, bool missing_somewhere) {
  log_.unused_parameter_size = 0;
  if (!joined) {
    for (const std::size_t i : usage_.in_state(State::unused)) {
      log_.unused_parameter_size += buckets_->bytes(i);
    }
  }
  if (first) usage_.remember_first_pass(joined);
  if (!joined && !usage_.as_in_first_pass()) log_.can_set_static_graph = false;
  usage_.end_pass();
  ++log_.num_iterations;
  if (first && !joined && find_unused_ && group_.rank() == 0 && log_.unused_parameter_size == 0 &&
      !missing_somewhere) {
    warn(
        "find_unused_parameters is set for a DistributedDataParallel, but every parameter got a "
        "gradient in the first backward. The search costs time in each: leave it out unless the "
        "graph changes.");
  }
}

LOCKSTEP_INLINE void Reducer::rebuild(int root) {
  const Tensor order = tensor(usage_.order(), log_.device);
  (void)group_.blocking().broadcast(order, root);
  std::vector<Tensor> tensors;
  std::vector<bool> sparse;
  std::vector<std::size_t> numbers;
  for (const std::int64_t number : order.to_vector<std::int64_t>()) {
    const auto i = static_cast<std::size_t>(number);
    log_.prev_iteration_grad_ready_order.push_back(i);
    if (!usage_.used_anywhere(i)) continue;
    tensors.push_back(buckets_->parameter(i));
    sparse.push_back(buckets_->is_sparse(i));
    numbers.push_back(i);
  }
  buckets_->assign(compute_bucket_assignment_by_size(tensors, limits_, sparse, numbers));
  log_.has_rebuilt_buckets = true;
  log_.rebuilt_bucket_sizes = buckets_->bucket_sizes();
}

}  // namespace lockstep::detail
