// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <string>

namespace lockstep::detail {

// Throws a ModuleError that names the first uninitialised parameter or buffer of the module, if it
// has one. Names are only made then. `user` is what cannot use it.
template <class M>
void check_initialized(const M& module, const char* user = "DataParallel") {
  bool initialized = true;
  walk_module<Paths::none>(module, [&]<class Node>(const Node& node) {
    if constexpr (std::derived_from<Node, Tensor>) {
      initialized = initialized && !is_uninitialized(node);
    }
  });
  if (initialized) return;
  walk_module(module, [user]<class Node>(const std::string& path, const Node& node) {
    if constexpr (std::derived_from<Node, Tensor>) {
      check<ModuleError>(!is_uninitialized(node),
                         "Modules with uninitialized parameters can't be used with `", user,
                         "`. Run a dummy forward pass to correctly initialize the modules: \"",
                         path, "\" is uninitialized");
    }
  });
}

}  // namespace lockstep::detail
