// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/parallel/powersgd_state.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::ddp_comm_hooks {

namespace detail {

// There is no dtype of unsigned numbers.
template <class T>
using StoredAs = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::int64_t, T>;

template <class T>
void at_least(const char* name, T least, T value) {
  check<ValueError>(value >= least, "PowerSGDState: expected ", name, " to be at least ", least,
                    ", got ", value);
}
inline std::string name_of(std::size_t parameter, const char* what) {
  return lockstep::detail::str("state.", parameter, '.', what);
}

}  // namespace detail

LOCKSTEP_INLINE PowerSGDState::Memory& PowerSGDState::memory_of(const Tensor& parameter) {
  return memory_.try_emplace(parameter.impl().get(), Memory{parameter}).first->second;
}

LOCKSTEP_INLINE const PowerSGDOptions& PowerSGDState::checked(const PowerSGDOptions& options) {
  detail::at_least("matrix_approximation_rank", std::int64_t{1}, options.matrix_approximation_rank);
  detail::at_least("start_powerSGD_iter", std::int64_t{0}, options.start_powerSGD_iter);
  detail::at_least("min_compression_rate", 0.0, options.min_compression_rate);
  detail::at_least("orthogonalization_epsilon", 0.0, options.orthogonalization_epsilon);
  return options;
}

LOCKSTEP_INLINE StateDict PowerSGDState::state_of(const std::vector<Tensor>& parameters) const {
  using lockstep::detail::named_number;
  StateDict dict;
  dict.push_back(named_number("iter", iter_));
  dict.push_back(named_number("numel_before_compression", before_));
  dict.push_back(named_number("numel_after_compression", after_));
  for_each_member(options_, [&dict]<class Option>(std::string_view name, const Option& option) {
    dict.push_back(named_number(std::string(name), static_cast<detail::StoredAs<Option>>(option)));
  });
  const std::string random = random_.state();
  const Tensor bytes =
      empty({static_cast<std::int64_t>(random.size())}, TensorOptions{.dtype = Dtype::u8});
  std::copy(random.begin(), random.end(), bytes.mutable_data_ptr<std::uint8_t>());
  dict.push_back({"random_state", bytes});
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = memory_.find(parameters[i].impl().get());
    if (found == memory_.end()) continue;
    const auto add = [&](const char* what, const Tensor& tensor) {
      if (tensor.defined()) dict.push_back({detail::name_of(i, what), tensor});
    };
    add("error", found->second.error);
    add("random", found->second.random);
    add("q", found->second.q);
  }
  return dict;
}

LOCKSTEP_INLINE void PowerSGDState::load_state(const StateDict& dict,
                                               const std::vector<Tensor>& parameters) {
  lockstep::detail::StateReader reader("PowerSGDState", dict);
  const std::int64_t iter = reader.count("iter");
  const std::int64_t before = reader.count("numel_before_compression");
  const std::int64_t after = reader.count("numel_after_compression");
  PowerSGDOptions options;
  for_each_member(options, [&reader]<class Option>(std::string_view name, Option& option) {
    option = static_cast<Option>(reader.number<detail::StoredAs<Option>>(std::string(name)));
  });
  const auto given = [&](const std::string& name) {
    const auto entry =
        lockstep::detail::find_if(dict, [&](const NamedTensor& each) { return each.name == name; });
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
    if (!reader.has_any(detail::name_of(i, ""))) continue;
    const Tensor& parameter = parameters[i];
    const auto [rows, columns] = matrix_of(parameter);
    const std::int64_t rank = std::max(std::int64_t{1}, options.matrix_approximation_rank);
    const Shape thin{std::min({rows, columns, rank}), columns};
    Memory loaded{parameter};
    if (reader.has_any(detail::name_of(i, "error"))) {
      loaded.error = copy_matrix(detail::name_of(i, "error"), parameter.device(), {rows, columns});
    }
    loaded.random = copy_matrix(detail::name_of(i, "random"), parameter.device(), thin);
    loaded.q = copy_matrix(detail::name_of(i, "q"), parameter.device(), thin);
    memory.emplace(parameter.impl().get(), std::move(loaded));
  }
  reader.finish();
  const PowerSGDOptions taken = checked(options);
  const auto* const text = bytes.const_data_ptr<std::uint8_t>();
  random_.set_state(std::string(text, text + bytes.numel()));
  options_ = taken;
  memory_ = std::move(memory);
  iter_ = iter;
  before_ = before;
  after_ = after;
}

}  // namespace lockstep::ddp_comm_hooks
