// SPDX-License-Identifier: Apache-2.0
#pragma once

// Modules: what they are (concepts.hpp), how their members are found (visit.hpp, walk_rules.hpp),
// and what can be done with any of them.
//
//   struct Net {                                    // no base class, no macro, no clone()
//     nn::Linear fc1{784, 512}, fc2{512, 10};
//     Tensor forward(const Tensor& x) { return fc2(relu(fc1(x))); }
//   };
//   Net net;
//   named_parameters(net);                          // fc1.weight, fc1.bias, fc2.weight, fc2.bias

#include <lockstep/module/clone.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/hooks.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/copyable.hpp>
