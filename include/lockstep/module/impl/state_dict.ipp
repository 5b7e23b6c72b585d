// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Every handle on a parameter or buffer, under every name it has, without absent ones.
inline StateDict state_handles(const TensorWalk& walk) {
  StateDict result;
  const auto list = [&](const nested::Path& path, const Tensor& tensor, TensorKind /*kind*/) {
    if (tensor.defined()) result.push_back({path.name(), tensor});
  };
  walk.for_each(list, SharedNodes::under_every_name);
  return result;
}

// A name without its parts "module".
inline std::string without_module_parts(std::string_view name) {
  constexpr std::string_view kPart = "module.";
  std::string result;
  while (!name.empty()) {
    const std::size_t dot = name.find('.');
    const std::size_t length = dot == std::string_view::npos ? name.size() : dot + 1;
    if (name.substr(0, length) != kPart) result += name.substr(0, length);
    name.remove_prefix(length);
  }
  return result;
}

// torch's normalisation layers did not save this before version 0.4.1. No result of lockstep
// depends on it.
inline bool may_be_missing(std::string_view name) {
  constexpr std::string_view kCount = "num_batches_tracked";
  return name == kCount || name.ends_with(".num_batches_tracked");
}

// Finds the module's names by those of a dict, which may contain other parts "module".
class TargetNames {
 public:
  explicit TargetNames(const StateDict& targets) {
    for (const NamedTensor& target : targets) {
      const auto [known, added] = plain_.emplace(without_module_parts(target.name), target.name);
      if (!added) known->second = {};  // ambiguous: matches none
    }
  }

  // The module's name that matches `name`; `name` itself if there is none.
  std::string_view find(std::string_view name) const {
    const auto found = plain_.find(without_module_parts(name));
    return found == plain_.end() || found->second.empty() ? name : found->second;
  }

 private:
  std::map<std::string, std::string_view> plain_;
};

// Gives each target its source's values; an uninitialised one also takes over the shape.
inline void copy_values(std::vector<std::pair<Tensor, Tensor>> targets_and_sources) {
  // Whatever needs memory is done before the first change, and so is reading what a change would
  // overwrite, since a source may be another one's target.
  std::unordered_set<const Storage*> overwritten;
  for (const auto& [target, source] : targets_and_sources) {
    overwritten.insert(target.impl()->storage.get());
  }
  for (auto& [target, source] : targets_and_sources) {
    const bool elsewhere = source.device() != target.device();
    if (is_uninitialized(target) || source.dtype() != target.dtype() ||
        (elsewhere && !(source.is_contiguous() && target.is_contiguous())) ||
        (overwritten.contains(source.impl()->storage.get()) && !same_memory(source, target))) {
      source = copy_as(source, {.dtype = target.dtype(), .device = target.device()});
    }
    const Stream stream = stream_of_copy(target, source);
    source.record_stream(stream);
    if (stream != target.impl()->storage->owner()) target.record_stream(stream);
  }
  for (const auto& [target, source] : targets_and_sources) {
    if (is_uninitialized(target)) {
      target.set_data(source);
    } else {
      copy_into(target, source);
    }
  }
}

LOCKSTEP_INLINE std::string list_names(std::string_view heading,
                                       const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += str("\n  ", heading, ": ", name);
  return result;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE StateDict state_dict(const detail::TensorWalk& module) {
  StateDict result = detail::state_handles(module);
  for (NamedTensor& entry : result) {
    if (!detail::is_uninitialized(entry.tensor)) entry.tensor = entry.tensor.detach();
  }
  return result;
}

LOCKSTEP_INLINE LoadResult load_state_dict(const detail::TensorWalk& module, const StateDict& dict,
                                           bool strict) {
  const StateDict targets = detail::state_handles(module);
  const detail::TargetNames names(targets);

  LoadResult result;
  std::vector<std::string> misfits;
  std::map<std::string_view, Tensor> sources;  // what no target has taken yet
  for (const NamedTensor& entry : dict) {
    const std::string_view name = names.find(entry.name);
    if (!sources.emplace(name, entry.tensor).second) {
      misfits.push_back(detail::str(name, " (given twice)"));
    }
  }

  std::vector<std::pair<Tensor, Tensor>> copies;                    // target, source
  std::unordered_map<const detail::TensorImpl*, Shape> new_shapes;  // of uninitialised targets
  std::unordered_set<const detail::TensorImpl*> given;
  std::vector<NamedTensor> not_given;
  for (const NamedTensor& target : targets) {
    const auto source = sources.find(target.name);
    if (source == sources.end()) {
      not_given.push_back(target);
      continue;
    }
    const detail::TensorImpl* const variable = target.tensor.impl().get();
    const bool has_shape = !detail::is_uninitialized(target.tensor);
    given.insert(variable);
    const auto misfit = [&](const auto&... why) {
      misfits.push_back(detail::str(target.name, " (", why..., ')'));
    };
    if (!source->second.defined()) {
      misfit("the dict's tensor is undefined");
    } else if (detail::is_uninitialized(source->second)) {
      if (has_shape) misfit("the dict's tensor is uninitialized");
    } else if (target.tensor.is_sparse() || source->second.is_sparse()) {
      misfit("the module's tensor or the dict's is sparse");
    } else {
      const Shape& given_shape = source->second.sizes();
      const Shape& shape = has_shape ? target.tensor.sizes()
                                     : new_shapes.emplace(variable, given_shape).first->second;
      if (has_shape && detail::repeats_elements(target.tensor)) {
        misfit("several of the module's elements are one in memory");
      } else if (given_shape == shape) {
        copies.emplace_back(target.tensor, source->second);
      } else {
        misfit("the module's shape is ", shape, ", the dict's ", given_shape);
      }
    }
    sources.erase(source);
  }
  for (const NamedTensor& target : not_given) {
    if (given.contains(target.tensor.impl().get()) || detail::may_be_missing(target.name)) continue;
    result.missing.push_back(target.name);
  }
  for (const auto& [name, source] : sources) result.unexpected.emplace_back(name);

  const bool names_fit = result.missing.empty() && result.unexpected.empty();
  const bool checkpoint =
      !result.missing.empty() && sources.contains("model." + result.missing.front());
  check<ModuleError>(
      misfits.empty() && (names_fit || !strict),
      "load_state_dict: the dict does not fit the module, nothing was loaded:",
      checkpoint ? "\n  it is a whole checkpoint: give io::load_checkpoint(…).model" : "",
      strict ? detail::list_names("missing", result.missing) : "",
      strict ? detail::list_names("unexpected", result.unexpected) : "",
      detail::list_names("does not fit", misfits));
  detail::copy_values(std::move(copies));
  return result;
}

}  // namespace lockstep
