// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <string>

namespace lockstep::detail {

// Throws a ModuleError that names the first uninitialised parameter or buffer of the module, if it
// has one. Names are only made then. `user` is what cannot use it.
template <class M>
void check_initialized(const M& module, const char* user = "DataParallel") {
  bool initialized = true;
  const auto look = [&](const std::string& /*path*/, const Tensor& tensor, TensorKind /*kind*/) {
    initialized = initialized && !is_uninitialized(tensor);
  };
  walk_tensors(module, look, Paths::none);
  if (initialized) return;
  walk_tensors(module, [user](const std::string& path, const Tensor& tensor, TensorKind /*kind*/) {
    check<ModuleError>(!is_uninitialized(tensor),
                       "Modules with uninitialized parameters can't be used with `", user,
                       "`. Run a dummy forward pass to correctly initialize the modules: \"", path,
                       "\" is uninitialized");
  });
}

}  // namespace lockstep::detail
