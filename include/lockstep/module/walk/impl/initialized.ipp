// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/initialized.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <string>

namespace lockstep::detail {

LOCKSTEP_INLINE bool is_plain_leaf(const Tensor& tensor, TensorKind kind) {
  return kind == TensorKind::plain && tensor.defined() && tensor.requires_grad() &&
         tensor.is_leaf();
}

LOCKSTEP_INLINE void check_no_plain_leaf(const TensorWalk& walk) {
  bool found = false;
  const auto look = [&](const std::string& /*path*/, const Tensor& tensor, TensorKind kind) {
    found = found || is_plain_leaf(tensor, kind);
  };
  walk.for_each_and_plain(look, Paths::none);
  if (!found) return;
  walk.for_each_and_plain([](const std::string& path, const Tensor& tensor, TensorKind kind) {
    check<ModuleError>(
        !is_plain_leaf(tensor, kind), "the member \"", path,
        "\" is a plain Tensor that requires grad, which is neither trained nor moved nor "
        "replicated nor saved with the module: make it a Parameter (a Buffer, if it is not "
        "trained), or "
        "detach() what is only kept");
  });
}

LOCKSTEP_INLINE void check_initialized(const TensorWalk& walk, const char* user) {
  bool ready = true;
  const auto look = [&](const std::string& /*path*/, const Tensor& tensor, TensorKind kind) {
    ready = ready &&
            !(kind == TensorKind::plain ? is_plain_leaf(tensor, kind) : is_uninitialized(tensor));
  };
  walk.for_each_and_plain(look, Paths::none);
  if (ready) return;
  check_no_plain_leaf(walk);
  walk.for_each([user](const std::string& path, const Tensor& tensor, TensorKind /*kind*/) {
    check<ModuleError>(!is_uninitialized(tensor),
                       "Modules with uninitialized parameters can't be used with `", user,
                       "`. Run a dummy forward pass to correctly initialize the modules: \"", path,
                       "\" is uninitialized");
  });
}

}  // namespace lockstep::detail
