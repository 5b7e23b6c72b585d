// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

// PowerSGD (Vogels, Karimireddy and Jaggi, 2019): gradients that are matrices are sent as the
// product of two thin ones.
namespace lockstep::ddp_comm_hooks {

// The same on every rank.
//
// **Torch counterpart.** The arguments of PowerSGDState, with its defaults.
struct PowerSGDOptions {
  // The columns of the thin matrices: what is sent grows with it, and what is lost shrinks.
  std::int64_t matrix_approximation_rank = 1;
  // How many backward passes are reduced as they are first, while gradients change fast.
  std::int64_t start_powerSGD_iter = 1000;
  // A gradient is compressed if that makes it smaller by more than this factor.
  double min_compression_rate = 2;
  // Whether what a pass has lost is added to the next one's gradient.
  bool use_error_feedback = true;
  // Whether a pass begins where the one before has ended, not from random numbers.
  bool warm_start = true;
  // Added to a norm that is divided by.
  double orthogonalization_epsilon = 0;
  std::uint64_t random_seed = 0;
};

// What a PowerSGD hook remembers from one pass to the next on one rank: for one model, and made
// alike on every rank.
//
// Errors and starting points are kept for each parameter, not for each bucket: they stay when
// DistributedDataParallel makes its buckets anew, so that any start_powerSGD_iter will do.
//
// **Torch counterpart.** torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState.
// **Threads and exceptions.** Used by the hook as the model's backward passes are, one at a time; a
// ValueError for a number that makes no sense.
class PowerSGDState : lockstep::detail::NonCopyable {
 public:
  explicit PowerSGDState(distributed::ProcessGroup group, const PowerSGDOptions& options = {})
      : group_(std::move(group)), options_(checked(options)), random_(options.random_seed) {}

  const distributed::ProcessGroup& group() const { return group_; }
  const PowerSGDOptions& options() const { return options_; }
  // How many passes have been reduced.
  std::int64_t iter() const { return iter_; }
  void set_iter(std::int64_t iter) { iter_ = iter; }

  struct CompressionStats {
    double compression_rate = 0;  // how many times more elements the gradients have
    std::int64_t numel_before_compression = 0;
    std::int64_t numel_after_compression = 0;
  };
  // Counts over the passes since start_powerSGD_iter: the elements of the gradients, and those that
  // a rank has sent for them.
  CompressionStats compression_stats() const {
    const double rate = after_ > 0 ? static_cast<double>(before_) / static_cast<double>(after_) : 0;
    return {rate, before_, after_};
  }

  // What it remembers on this rank, with its options, by name: "state.0.error" is of the first of
  // the model's `parameters`; numbers are tensors of one element: what io::save_file can write.
  //
  // Each rank has lost something else, so each rank keeps its own. The tensors are those of the
  // hook: the next pass changes them. The process group is no part of it.
  //
  // **Torch counterpart.** PowerSGDState.__getstate__.
  template <std::derived_from<Tensor> T>
  StateDict state_dict(const std::vector<T>& parameters) const {
    return state_of({parameters.begin(), parameters.end()});
  }

  // Takes over the options and copies of what `state_dict` gave on this rank, for the same
  // parameters in the same order: training goes on with the same bits if gradients have the same
  // dtype. (Without warm_start from the second pass on: a model's first pass may draw random
  // numbers in another order.) Called by every rank, before or between passes.
  //
  // **Torch counterpart.** PowerSGDState.__setstate__.
  // **Devices and streams.** The copies are on the parameters' devices and issued to the current
  // streams.
  // **Threads and exceptions.** A ModuleError that lists all that is missing, unexpected or of
  // another shape or dtype, and counts that are negative or too large, or a ValueError for an
  // option that the constructor would not take; nothing has been changed then.
  template <std::derived_from<Tensor> T>
  void load_state_dict(const StateDict& dict, const std::vector<T>& parameters) {
    load_state(dict, {parameters.begin(), parameters.end()});
  }

  // What the hook itself uses.

  // The rows and columns that a gradient, or its parameter, has as a matrix.
  static std::pair<std::int64_t, std::int64_t> matrix_of(const Tensor& gradient) {
    const std::int64_t rows = gradient.dim() > 0 ? gradient.size(0) : 1;
    return {rows, rows > 0 ? gradient.numel() / rows : 0};
  }

  struct Memory {
    Tensor parameter;    // keeps the key's address from being used again
    Tensor error = {};   // [rows, columns], what has been lost
    Tensor random = {};  // [rank, columns]
    Tensor q = {};       // the same, where the next pass begins
  };
  Memory& memory_of(const Tensor& parameter);
  Generator& random() { return random_; }
  void count(std::int64_t before, std::int64_t after) {
    before_ += before;
    after_ += after;
  }

 private:
  static const PowerSGDOptions& checked(const PowerSGDOptions& options);

  StateDict state_of(const std::vector<Tensor>& parameters) const;
  void load_state(const StateDict& dict, const std::vector<Tensor>& parameters);

  distributed::ProcessGroup group_;
  PowerSGDOptions options_;
  mutable Generator random_;  // in the same state on every rank
  std::unordered_map<const lockstep::detail::TensorImpl*, Memory> memory_;
  std::int64_t iter_ = 0;
  std::int64_t before_ = 0;
  std::int64_t after_ = 0;
};

// The mean over the ranks of gradients, each compressed to a product of two thin matrices.
//
// A gradient is taken as a matrix of as many rows as its first dimension has; those for which it
// does not pay (min_compression_rate), vectors among them unless that is below 1, are sent as they
// are. What a pass loses is added to the next one's gradient. Memory: for each compressed gradient
// the error, which is as large, and while its bucket is being reduced the gradient again.
//
// **Torch counterpart.** powerSGD_hook. Errors belong to parameters, not to buckets, and what is
// sent as it is has none; half precision is compressed in f32.
// **Devices and streams.** On the gradients' device. Two collectives a bucket for the thin
// matrices, of which the second one starts at the end of backward, and one for the rest.
// **Threads and exceptions.** As CommHook. Every rank gets the same bits.
// **Example.**
//   const auto state = std::make_shared<ls::ddp_comm_hooks::PowerSGDState>(
//       group, ls::ddp_comm_hooks::PowerSGDOptions{.matrix_approximation_rank = 2});
//   model.register_comm_hook(ls::ddp_comm_hooks::powerSGD_hook(state));
CommHook powerSGD_hook(std::shared_ptr<PowerSGDState> state);

}  // namespace lockstep::ddp_comm_hooks

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/powersgd_hook.ipp>
#endif
