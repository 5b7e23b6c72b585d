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

// PowerSGD (Vogels, Karimireddy and Jaggi, 2019): sends a gradient that is a matrix as the product
// of two thin matrices.
namespace lockstep::ddp_comm_hooks {

// How gradients are compressed. The same on every rank.
//
// **Torch counterpart.** The arguments of PowerSGDState, with its defaults.
struct PowerSGDOptions {
  // The columns of the thin matrices. More columns send more and lose less.
  std::int64_t matrix_approximation_rank = 1;
  // The number of backward passes to reduce uncompressed first, while gradients change fast.
  std::int64_t start_powerSGD_iter = 1000;
  // A gradient is compressed if that makes it smaller by more than this factor.
  double min_compression_rate = 2;
  // Whether a pass's error is added to the next pass's gradient.
  bool use_error_feedback = true;
  // Whether a pass starts from the last one's result rather than from random numbers.
  bool warm_start = true;
  // Added to the norms that columns are divided by.
  double orthogonalization_epsilon = 0;
  std::uint64_t random_seed = 0;
};

// What a PowerSGD hook remembers between passes on one rank. Each model has one, made alike on
// every rank.
//
// Errors and starting points belong to parameters, not to buckets, so they survive when
// DistributedDataParallel rebuilds its buckets.
//
// **Torch counterpart.** torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState.
// **Threads and exceptions.** One thread at a time, as the model's backward passes. A ValueError
// for an option out of range.
class PowerSGDState : lockstep::detail::NonCopyable {
 public:
  explicit PowerSGDState(distributed::ProcessGroup group, const PowerSGDOptions& options = {})
      : group_(std::move(group)), options_(checked(options)), random_(options.random_seed) {}

  const distributed::ProcessGroup& group() const { return group_; }
  const PowerSGDOptions& options() const { return options_; }
  // The number of passes reduced so far.
  std::int64_t iter() const { return iter_; }
  void set_iter(std::int64_t iter) { iter_ = iter; }

  struct CompressionStats {
    double compression_rate = 0;  // how many times more elements the gradients have
    std::int64_t numel_before_compression = 0;
    std::int64_t numel_after_compression = 0;
  };
  // Counts, over the passes since start_powerSGD_iter, the elements of the gradients and those that
  // this rank sent for them.
  CompressionStats compression_stats() const {
    const double rate = after_ > 0 ? static_cast<double>(before_) / static_cast<double>(after_) : 0;
    return {rate, before_, after_};
  }

  // This rank's memory and options by name, as io::save_file writes them: "state.0.error" belongs
  // to the first of the model's `parameters`; numbers are tensors of one element.
  //
  // Ranks differ in their errors, so save each rank's. The tensors are the hook's own: the next
  // pass changes them. The process group is not included.
  //
  // **Torch counterpart.** PowerSGDState.__getstate__.
  template <std::derived_from<Tensor> T>
  StateDict state_dict(const std::vector<T>& parameters) const {
    return state_of({parameters.begin(), parameters.end()});
  }

  // Restores options and memory from copies of what `state_dict` gave on this rank, for the same
  // parameters in the same order. Every rank calls it, before or between passes. Training then
  // continues with the same bits if gradients have the same dtype (without warm_start only from the
  // second pass on, since a model's first pass may draw random numbers in another order).
  //
  // **Torch counterpart.** PowerSGDState.__setstate__.
  // **Devices and streams.** The copies are on the parameters' devices, made on the current
  // streams.
  // **Threads and exceptions.** A ModuleError that lists what is missing, unexpected, of another
  // shape or dtype, or a count out of range; a ValueError for an option that the constructor
  // refuses. Nothing has changed then.
  template <std::derived_from<Tensor> T>
  void load_state_dict(const StateDict& dict, const std::vector<T>& parameters) {
    load_state(dict, {parameters.begin(), parameters.end()});
  }

  // What the hook itself uses.

  // The rows and columns of a gradient, or of its parameter, seen as a matrix.
  static std::pair<std::int64_t, std::int64_t> matrix_of(const Tensor& gradient) {
    const std::int64_t rows = gradient.dim() > 0 ? gradient.size(0) : 1;
    return {rows, rows > 0 ? gradient.numel() / rows : 0};
  }

  struct Memory {
    Tensor parameter;    // keeps the key's address from being reused
    Tensor error = {};   // [rows, columns], what compression has lost
    Tensor random = {};  // [rank, columns]
    Tensor q = {};       // the same, where the next pass starts
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

// Averages gradients over the ranks, each compressed to a product of two thin matrices.
//
// A gradient is taken as a matrix with a row per element of its first dimension. Gradients that
// would not shrink enough (min_compression_rate), such as vectors, are sent as they are. Each
// compressed gradient takes twice its own memory: for its error, and while its bucket is reduced.
//
// **Torch counterpart.** powerSGD_hook. Here errors belong to parameters, not buckets, gradients
// sent as they are have none, and half precision is compressed in f32.
// **Devices and streams.** On the gradients' device. A bucket takes two collectives for the thin
// matrices, the second at the end of backward, and one for the rest.
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
