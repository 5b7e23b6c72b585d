// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

// A plain Tensor that requires grad and is a leaf: it was meant to be trained, and nothing does so.
// A tensor that requires grad as the result of an operation, such as an activation that forward
// keeps, is no leaf.
bool is_plain_leaf(const Tensor& tensor, TensorKind kind);

// Throws a ModuleError that names the first plain leaf of the module, if it has one.
void check_no_plain_leaf(const TensorWalk& module);

// Throws a ModuleError that names the first plain leaf, or else the first uninitialised parameter
// or buffer of the module, if it has one. Names are only made then. The message says that `user`
// cannot use the module.
void check_initialized(const TensorWalk& module, const char* user = "DataParallel");

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/walk/impl/initialized.ipp>
#endif
