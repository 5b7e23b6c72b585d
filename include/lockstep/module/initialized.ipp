// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/initialized.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <string>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_initialized(const TensorWalk& walk, const char* user) {
  bool initialized = true;
  const auto look = [&](const std::string& /*path*/, const Tensor& tensor, TensorKind /*kind*/) {
    initialized = initialized && !is_uninitialized(tensor);
  };
  walk.for_each(look, Paths::none);
  if (initialized) return;
  walk.for_each([user](const std::string& path, const Tensor& tensor, TensorKind /*kind*/) {
    check<ModuleError>(!is_uninitialized(tensor),
                       "Modules with uninitialized parameters can't be used with `", user,
                       "`. Run a dummy forward pass to correctly initialize the modules: \"", path,
                       "\" is uninitialized");
  });
}

}  // namespace lockstep::detail
