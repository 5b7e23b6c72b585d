// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using StateDict = std::vector<NamedTensor>;

// The names that only a state dict or only a module has.
struct LoadResult {
  std::vector<std::string> missing;     // the module has them, the dict does not
  std::vector<std::string> unexpected;  // the dict has them, the module does not
};

namespace detail {

// A line of a message for each name.
std::string list_names(std::string_view heading, const std::vector<std::string>& names);

}  // namespace detail

// Returns the module's parameters and buffers by name, in the order of declaration.
//
// The tensors are detached views of the module's memory: writing to them changes the module, and
// training changes them. Tied tensors are listed under each of their names, as in torch, so that a
// module without ties can load the dict. An uninitialised parameter is listed as itself.
//
// **Torch counterpart.** Module.state_dict.
StateDict state_dict(const detail::TensorWalk& module);

// Copies the values of `dict` into the module's parameters and buffers, in place, converted to each
// tensor's dtype and device.
//
// With `strict` every name must have a counterpart; otherwise names without one are skipped and
// returned. A tied tensor needs only one of its names, and `num_batches_tracked` may be missing, as
// in files of torch before 0.4.1. Parts "module" in a name, which torch's DataParallel and
// DistributedDataParallel add, are ignored if only one of the module's names then matches. An
// uninitialised parameter takes over the shape of the dict's tensor; an uninitialised tensor of the
// dict fits nothing else.
//
// **Torch counterpart.** Module.load_state_dict, where the file's version says whether
// `num_batches_tracked` may be missing.
// **Devices and streams.** Copies on the current streams (see copy_into).
// **Backward.** Not recorded.
// **Threads and exceptions.** A ModuleError that lists all names that are missing or unexpected (if
// strict), given twice, or of tensors that do not fit: of another shape, sparse, or, in the module,
// with several elements at one address. Nothing has been copied then.
LoadResult load_state_dict(const detail::TensorWalk& module, const StateDict& dict,
                           bool strict = true);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/impl/state_dict.ipp>
#endif
