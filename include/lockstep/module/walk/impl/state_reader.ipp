// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE StateReader::StateReader(std::string_view what, const StateDict& dict)
    : what_(what) {
  for (const NamedTensor& entry : dict) {
    if (!entry.tensor.defined()) {
      misfit(entry.name, "is undefined");
    } else if (!left_.emplace(entry.name, entry.tensor).second) {
      misfit(entry.name, "is given twice");
    }
  }
}

LOCKSTEP_INLINE std::int64_t StateReader::count(const std::string& name) {
  const auto entry = left_.find(name);
  const bool is_f32 = entry != left_.end() && entry->second.dtype() == Dtype::f32;
  const double counted =
      is_f32 ? number<float>(name) : static_cast<double>(number<std::int64_t>(name));
  constexpr auto kMost = static_cast<double>(std::int64_t{1} << 53);  // a double counts no further
  if (counted < 0) {
    misfit(name, "is negative");
  } else if (!(counted < kMost)) {
    misfit(name, "is too large");
  } else if (counted != std::trunc(counted)) {
    misfit(name, "is no whole number");
  } else {
    return static_cast<std::int64_t>(counted);
  }
  return 0;
}

LOCKSTEP_INLINE bool StateReader::has_any(const std::string& prefix) const {
  const auto found = left_.lower_bound(prefix);
  return found != left_.end() && found->first.starts_with(prefix);
}

LOCKSTEP_INLINE Tensor StateReader::copy(const std::string& name, const Tensor& like) {
  const Tensor source = take(name);
  if (!source.defined()) return {};
  if (source.sizes() != like.sizes()) {
    misfit(name, str("has shape ", source.sizes(), ", the parameter ", like.sizes()));
    return {};
  }
  return copy_as(source, like.options());
}

LOCKSTEP_INLINE void StateReader::expect_indices(const std::string& name, std::size_t count) {
  const Tensor tensor = take(name);
  if (!tensor.defined() || tensor.sizes() == Shape{static_cast<std::int64_t>(count)}) return;
  misfit(name, str("has to list ", count, " parameters, and is of shape ", tensor.sizes()));
}

LOCKSTEP_INLINE void StateReader::misfit(const std::string& name, std::string_view why) {
  misfits_.push_back(str(name, " ", why));
}

LOCKSTEP_INLINE void StateReader::finish() const {
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : left_) unexpected.push_back(name);
  check<ModuleError>(missing_.empty() && misfits_.empty() && unexpected.empty(), what_,
                     ".load_state_dict: the dict does not fit, nothing was loaded:",
                     list_names("missing", missing_), list_names("unexpected", unexpected),
                     list_names("does not fit", misfits_));
}

LOCKSTEP_INLINE Tensor StateReader::take(const std::string& name) {
  const auto entry = left_.extract(name);
  if (entry.empty()) {
    missing_.push_back(name);
  } else if (is_uninitialized(entry.mapped())) {
    misfit(name, "is uninitialized");
  } else if (entry.mapped().is_sparse()) {
    misfit(name, "is sparse");
  } else {
    return entry.mapped();
  }
  return {};
}

}  // namespace lockstep::detail
