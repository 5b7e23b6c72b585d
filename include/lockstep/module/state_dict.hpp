// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep {

using StateDict = std::vector<NamedTensor>;

namespace detail {

// Every handle on a parameter or buffer under every name it has; absent ones are left out.
template <class M>
StateDict state_handles(const M& module) {
  StateDict result;
  const auto list = [&](const std::string& path, const Tensor& tensor, TensorKind /*kind*/) {
    if (tensor.defined()) result.push_back({path, tensor});
  };
  walk_tensors(module, list, Paths::build, SharedNodes::under_every_name);
  return result;
}

// torch's DataParallel and DistributedDataParallel save their module's names behind this.
inline constexpr std::string_view kModulePrefix = "module.";

inline bool has_module_prefix(const NamedTensor& entry) {
  return entry.name.starts_with(kModulePrefix);
}

inline std::string list_names(std::string_view heading, const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += str("\n  ", heading, ": ", name);
  return result;
}

}  // namespace detail

// The module's parameters and buffers by name, in the order of declaration.
//
// Tied tensors are listed under each of their names, as torch does, so that the dict can be loaded
// into a module in which they are not tied. The tensors are on the module's own memory, without a
// place in a graph: writing to them changes the module, and training changes them. An uninitialised
// parameter is listed as itself.
//
// **Torch counterpart.** Module.state_dict.
template <class M>
StateDict state_dict(const M& module) {
  StateDict result = detail::state_handles(module);
  for (NamedTensor& entry : result) {
    if (!detail::is_uninitialized(entry.tensor)) entry.tensor = entry.tensor.detach();
  }
  return result;
}

// Names that a state dict and a module do not share.
struct LoadResult {
  std::vector<std::string> missing;     // the module has them, the dict does not
  std::vector<std::string> unexpected;  // the dict has them, the module does not
};

// Copies the values of `dict` into the module's parameters and buffers, in place.
//
// Values are converted to the dtype and copied to the device of the module's tensor. If every name
// of the dict begins with "module." and none of the module's does, that prefix is dropped. A tied
// tensor needs only one of its names. With `strict` every name must have its counterpart; without,
// names without one are left out and returned. An uninitialised parameter of the module takes the
// shape that the dict gives; one of the dict fits only another.
//
// **Torch counterpart.** Module.load_state_dict.
// **Devices and streams.** The copies are issued to the current streams (see copy_into).
// **Backward.** Not recorded.
// **Threads and exceptions.** A ModuleError that lists all names that are missing or unexpected (if
// strict), given twice, or of another shape; nothing has been copied then.
template <class M>
LoadResult load_state_dict(const M& module, const StateDict& dict, bool strict = true) {
  const StateDict targets = detail::state_handles(module);
  const bool drop_prefix = std::all_of(dict.begin(), dict.end(), detail::has_module_prefix) &&
                           std::none_of(targets.begin(), targets.end(), detail::has_module_prefix);

  LoadResult result;
  std::vector<std::string> misfits;
  std::map<std::string_view, Tensor> sources;  // what no target has taken yet
  for (const NamedTensor& entry : dict) {
    std::string_view name = entry.name;
    if (drop_prefix) name.remove_prefix(detail::kModulePrefix.size());
    if (!sources.emplace(name, entry.tensor).second) {
      misfits.push_back(detail::str(name, " (given twice)"));
    }
  }

  std::vector<std::pair<Tensor, Tensor>> copies;                    // target, source
  std::unordered_map<const detail::TensorImpl*, Shape> new_shapes;  // of what has none yet
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
    if (!source->second.defined()) {
      misfits.push_back(detail::str(target.name, " (the dict's tensor is undefined)"));
    } else if (detail::is_uninitialized(source->second)) {
      if (has_shape) {
        misfits.push_back(detail::str(target.name, " (the dict's tensor is uninitialized)"));
      }
    } else {
      const Shape& given_shape = source->second.sizes();
      const Shape& shape = has_shape ? target.tensor.sizes()
                                     : new_shapes.emplace(variable, given_shape).first->second;
      if (given_shape == shape) {
        copies.emplace_back(target.tensor, source->second);
      } else {
        misfits.push_back(detail::str(target.name, " (the module's shape is ", shape,
                                      ", the dict's ", given_shape, ")"));
      }
    }
    sources.erase(source);
  }
  for (const NamedTensor& target : not_given) {
    if (!given.contains(target.tensor.impl().get())) result.missing.push_back(target.name);
  }
  for (const auto& [name, source] : sources) result.unexpected.emplace_back(name);

  const bool names_fit = result.missing.empty() && result.unexpected.empty();
  check<ModuleError>(misfits.empty() && (names_fit || !strict),
                     "load_state_dict: the dict does not fit the module, nothing was loaded:",
                     strict ? detail::list_names("missing", result.missing) : "",
                     strict ? detail::list_names("unexpected", result.unexpected) : "",
                     detail::list_names("does not fit", misfits));
  for (const auto& [target, source] : copies) {
    if (detail::is_uninitialized(target)) detail::materialize(target, source.sizes());
    detail::copy_into(target, source);
  }
  return result;
}

}  // namespace lockstep
