// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

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
    using lockstep::detail::named_number;
    StateDict dict;
    dict.push_back(named_number("iter", iter_));
    dict.push_back(named_number("numel_before_compression", before_));
    dict.push_back(named_number("numel_after_compression", after_));
    for_each_member(options_, [&dict]<class Option>(std::string_view name, const Option& option) {
      dict.push_back(named_number(std::string(name), static_cast<StoredAs<Option>>(option)));
    });
    const std::string random = random_.state();
    const Tensor bytes =
        empty({static_cast<std::int64_t>(random.size())}, TensorOptions{.dtype = Dtype::u8});
    std::copy(random.begin(), random.end(), bytes.template mutable_data_ptr<std::uint8_t>());
    dict.push_back({"random_state", bytes});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto found = memory_.find(parameters[i].impl().get());
      if (found == memory_.end()) continue;
      const auto add = [&](const char* what, const Tensor& tensor) {
        if (tensor.defined()) dict.push_back({name_of(i, what), tensor});
      };
      add("error", found->second.error);
      add("random", found->second.random);
      add("q", found->second.q);
    }
    return dict;
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
  // another shape or dtype, or a ValueError for an option that the constructor would not take or a
  // negative count; nothing has been changed then.
  template <std::derived_from<Tensor> T>
  void load_state_dict(const StateDict& dict, const std::vector<T>& parameters) {
    lockstep::detail::StateReader reader("PowerSGDState", dict);
    const auto iter = reader.number<std::int64_t>("iter");
    const auto before = reader.number<std::int64_t>("numel_before_compression");
    const auto after = reader.number<std::int64_t>("numel_after_compression");
    PowerSGDOptions options;
    for_each_member(options, [&reader]<class Option>(std::string_view name, Option& option) {
      option = static_cast<Option>(reader.number<StoredAs<Option>>(std::string(name)));
    });
    const auto given = [&](const std::string& name) {
      const auto entry = lockstep::detail::find_if(
          dict, [&](const NamedTensor& each) { return each.name == name; });
      return entry == dict.end() ? Tensor() : entry->tensor;
    };
    const auto copy = [&](const std::string& name, Dtype dtype, Device device, const Shape& shape) {
      return reader.copy(name, empty(shape, {.dtype = dtype, .device = device}));
    };
    // f32, or f64 for buckets of f64, which hooks around this one may have made of any parameters.
    const auto copy_matrix = [&](const std::string& name, Device device, const Shape& shape) {
      const Tensor source = given(name);
      const Dtype dtype = source.defined() ? source.dtype() : Dtype::f32;
      if (dtype != Dtype::f32 && dtype != Dtype::f64) {
        reader.misfit(name, lockstep::detail::str("has to be of f32 or f64, and is of ", dtype));
      }
      return copy(name, dtype, device, shape);
    };
    const Tensor state = given("random_state");
    if (state.defined() && state.dtype() != Dtype::u8) {
      reader.misfit("random_state",
                    lockstep::detail::str("has to be of u8, and is of ", state.dtype()));
    }
    const Tensor bytes = copy("random_state", state.defined() ? state.dtype() : Dtype::u8, {},
                              {state.defined() ? state.numel() : 0});
    std::unordered_map<const lockstep::detail::TensorImpl*, Memory> memory;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!reader.has_any(name_of(i, ""))) continue;
      const Tensor& parameter = parameters[i];
      const auto [rows, columns] = matrix_of(parameter);
      const std::int64_t rank = std::max(std::int64_t{1}, options.matrix_approximation_rank);
      const Shape thin{std::min({rows, columns, rank}), columns};
      Memory loaded{parameter};
      if (reader.has_any(name_of(i, "error"))) {
        loaded.error = copy_matrix(name_of(i, "error"), parameter.device(), {rows, columns});
      }
      loaded.random = copy_matrix(name_of(i, "random"), parameter.device(), thin);
      loaded.q = copy_matrix(name_of(i, "q"), parameter.device(), thin);
      memory.emplace(parameter.impl().get(), std::move(loaded));
    }
    reader.finish();
    const PowerSGDOptions taken = checked(options);
    at_least("iter", std::int64_t{0}, iter);
    at_least("numel_before_compression", std::int64_t{0}, before);
    at_least("numel_after_compression", std::int64_t{0}, after);
    const auto* const text = bytes.template const_data_ptr<std::uint8_t>();
    random_.set_state(std::string(text, text + bytes.numel()));
    options_ = taken;
    memory_ = std::move(memory);
    iter_ = iter;
    before_ = before;
    after_ = after;
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
  Memory& memory_of(const Tensor& parameter) {
    return memory_.try_emplace(parameter.impl().get(), Memory{parameter}).first->second;
  }
  Generator& random() { return random_; }
  void count(std::int64_t before, std::int64_t after) {
    before_ += before;
    after_ += after;
  }

 private:
  // There is no dtype of unsigned numbers.
  template <class T>
  using StoredAs = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::int64_t, T>;

  template <class T>
  static void at_least(const char* name, T least, T value) {
    check<ValueError>(value >= least, "PowerSGDState: expected ", name, " to be at least ", least,
                      ", got ", value);
  }
  static const PowerSGDOptions& checked(const PowerSGDOptions& options) {
    at_least("matrix_approximation_rank", std::int64_t{1}, options.matrix_approximation_rank);
    at_least("start_powerSGD_iter", std::int64_t{0}, options.start_powerSGD_iter);
    at_least("min_compression_rate", 0.0, options.min_compression_rate);
    at_least("orthogonalization_epsilon", 0.0, options.orthogonalization_epsilon);
    return options;
  }

  static std::string name_of(std::size_t parameter, const char* what) {
    return lockstep::detail::str("state.", parameter, '.', what);
  }

  distributed::ProcessGroup group_;
  PowerSGDOptions options_;
  mutable Generator random_;  // in the same state on every rank
  std::unordered_map<const lockstep::detail::TensorImpl*, Memory> memory_;
  std::int64_t iter_ = 0;
  std::int64_t before_ = 0;
  std::int64_t after_ = 0;
};

}  // namespace lockstep::ddp_comm_hooks
