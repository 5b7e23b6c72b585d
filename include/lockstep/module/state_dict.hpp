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

// Names that a state dict and a module do not share.
struct LoadResult {
  std::vector<std::string> missing;     // the module has them, the dict does not
  std::vector<std::string> unexpected;  // the dict has them, the module does not
};

namespace detail {

// A line of a message for each name.
std::string list_names(std::string_view heading, const std::vector<std::string>& names);

}  // namespace detail

// The module's parameters and buffers by name, in the order of declaration.
//
// Tied tensors are listed under each of their names, as torch does, so that the dict can be loaded
// into a module in which they are not tied. The tensors are on the module's own memory, without a
// place in a graph: writing to them changes the module, and training changes them. An uninitialised
// parameter is listed as itself.
//
// **Torch counterpart.** Module.state_dict.
StateDict state_dict(const detail::TensorWalk& module);

// Copies the values of `dict` into the module's parameters and buffers, in place.
//
// The dict may have the module's own tensors under other names: their values before the call count.
// Values are converted to the dtype and copied to the device of the module's tensor. A name of the
// dict that the module does not have stands for the module's name that equals it when the parts
// "module" are left out of both, if there is just one: torch's DataParallel and
// DistributedDataParallel put such a part into the names of what they hold, one for each level,
// also within a module. A tied tensor needs only one of its names. With `strict` every name must
// have its counterpart; without, names without one are left out and returned. An uninitialised
// parameter of the module takes the shape that the dict gives; an uninitialised one of the dict
// fits no other. `num_batches_tracked` may be missing, as in files of torch before 0.4.1.
//
// **Torch counterpart.** Module.load_state_dict, for which the version in the file says whether
// `num_batches_tracked` may be missing.
// **Devices and streams.** The copies are issued to the current streams (see copy_into).
// **Backward.** Not recorded.
// **Threads and exceptions.** A ModuleError that lists all names that are missing or unexpected (if
// strict), given twice, of another shape, of a sparse tensor, or of a tensor of the module whose
// elements are one in memory; nothing has been copied then.
LoadResult load_state_dict(const detail::TensorWalk& module, const StateDict& dict,
                           bool strict = true);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/impl/state_dict.ipp>
#endif
