// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <unordered_map>
#include <utility>

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
class PowerSGDState {
 public:
  explicit PowerSGDState(distributed::ProcessGroup group, const PowerSGDOptions& options = {})
      : group_(std::move(group)), options_(options), random_(options.random_seed) {
    const auto at_least = [](const char* name, auto least, auto value) {
      check<ValueError>(value >= least, "PowerSGDState: expected ", name, " to be at least ", least,
                        ", got ", value);
    };
    at_least("matrix_approximation_rank", std::int64_t{1}, options.matrix_approximation_rank);
    at_least("start_powerSGD_iter", std::int64_t{0}, options.start_powerSGD_iter);
    at_least("min_compression_rate", 0.0, options.min_compression_rate);
    at_least("orthogonalization_epsilon", 0.0, options.orthogonalization_epsilon);
  }
  PowerSGDState(const PowerSGDState&) = delete;
  PowerSGDState& operator=(const PowerSGDState&) = delete;

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
  // Of the passes since start_powerSGD_iter: the elements of the gradients, and those that a rank
  // has sent for them.
  CompressionStats compression_stats() const {
    const double rate = after_ > 0 ? static_cast<double>(before_) / static_cast<double>(after_) : 0;
    return {rate, before_, after_};
  }

  // What the hook itself uses.

  struct Memory {
    Tensor parameter;    // keeps the key its own
    Tensor error = {};   // [rows, columns], what has been lost
    Tensor random = {};  // [rank, columns]
    Tensor q = {};       // the same, where the next pass begins
  };
  Memory& memory_of(const Tensor& parameter) {
    return memory_.try_emplace(parameter.impl().get(), Memory{parameter}).first->second;
  }
  Generator& random() { return random_; }
  void count(std::int64_t before, std::int64_t after) {
    before_ += before;
    after_ += after;
  }

 private:
  distributed::ProcessGroup group_;
  PowerSGDOptions options_;
  Generator random_;  // in the same state on every rank
  std::unordered_map<const lockstep::detail::TensorImpl*, Memory> memory_;
  std::int64_t iter_ = 0;
  std::int64_t before_ = 0;
  std::int64_t after_ = 0;
};

}  // namespace lockstep::ddp_comm_hooks
