// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/tensor_walk.hpp>

namespace lockstep::detail {

// Throws a ModuleError that names the first uninitialised parameter or buffer of the module, if it
// has one. Names are only made then. `user` is what cannot use it.
void check_initialized(const TensorWalk& module, const char* user = "DataParallel");

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/initialized.ipp>
#endif
