// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

// Refuses a plain Tensor that requires grad and is a leaf: it should be trained, but nothing would
// train it. The result of an operation, such as an activation that forward keeps, is not a leaf.
inline void check_no_plain_leaf(const nested::Path& path, const Tensor& tensor, TensorKind kind) {
  if (kind != TensorKind::plain || !tensor.defined()) return;
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  fail<ModuleError>("the member \"", path.name(),
                    "\" is a plain Tensor that requires grad, which is neither trained nor moved "
                    "nor replicated nor saved with the module: make it a Parameter (a Buffer, if "
                    "it is not trained), or detach() what is only kept");
}

LOCKSTEP_INLINE void check_parameters(const TensorWalk& walk, const char* user) {
  std::optional<std::string> uninitialized;  // the first one's name; "" is the module itself
  walk.for_each_with_plain([&](const nested::Path& path, const Tensor& tensor, TensorKind kind) {
    check_no_plain_leaf(path, tensor, kind);
    if (kind == TensorKind::plain || !is_uninitialized(tensor)) return;
    if (!uninitialized) uninitialized = path.name();
  });
  check<ModuleError>(!uninitialized, "Modules with uninitialized parameters can't be used with `",
                     user, "`. Run a dummy forward pass to correctly initialize the modules: \"",
                     uninitialized.value_or(""), "\" is uninitialized");
}

template <class T>
inline constexpr TensorKind kind_of =
    std::is_same_v<T, Parameter> ? TensorKind::parameter : TensorKind::buffer;

// Every tensor of type T (Parameter or Buffer) once, under its first name, without absent ones.
template <class T>
std::vector<Named<T>> named_tensors(const TensorWalk& walk) {
  std::vector<Named<T>> result;
  std::unordered_set<const TensorImpl*> seen;
  walk.for_each([&](const nested::Path& path, const Tensor& tensor, TensorKind kind) {
    if (kind == kind_of<T> && tensor.defined() && seen.insert(tensor.impl().get()).second) {
      result.push_back({path.name(), static_cast<const T&>(tensor)});
    }
  });
  return result;
}

// Whether two of the handles refer to the same variable.
template <class T>
bool has_duplicates(const std::vector<T>& handles) {
  constexpr std::size_t kFew = 16;  // comparing so few with each other costs less than sorting
  if (handles.size() <= kFew) {
    for (std::size_t i = 0; i < handles.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (handles[i].is_same(handles[j])) return true;
      }
    }
    return false;
  }
  std::vector<const TensorImpl*> variables;
  variables.reserve(handles.size());
  for (const T& handle : handles) variables.push_back(handle.impl().get());
  std::sort(variables.begin(), variables.end());
  return std::adjacent_find(variables.begin(), variables.end()) != variables.end();
}

// named_tensors without the names; all parameters and buffers if T is Tensor. Every training step
// calls it, so it allocates no names.
template <class T>
std::vector<T> tensors_of_type(const TensorWalk& walk) {
  constexpr std::size_t kUsual = 8;
  std::vector<T> result;
  result.reserve(kUsual);
  walk.for_each([&](const nested::Path& /*path*/, const Tensor& tensor, TensorKind kind) {
    if constexpr (!std::is_same_v<T, Tensor>) {
      if (kind != kind_of<T>) return;
    }
    if (tensor.defined()) result.push_back(static_cast<const T&>(tensor));
  });
  if (!has_duplicates(result)) return result;
  std::unordered_set<const TensorImpl*> seen;
  std::erase_if(result,
                [&seen](const T& handle) { return !seen.insert(handle.impl().get()).second; });
  return result;
}

LOCKSTEP_INLINE std::vector<Tensor> tensors_of(const TensorWalk& walk) {
  return tensors_of_type<Tensor>(walk);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE std::vector<NamedParameter> named_parameters(const detail::TensorWalk& walk) {
  walk.for_each_with_plain(detail::check_no_plain_leaf);
  return detail::named_tensors<Parameter>(walk);
}

LOCKSTEP_INLINE std::vector<NamedBuffer> named_buffers(const detail::TensorWalk& walk) {
  return detail::named_tensors<Buffer>(walk);
}

LOCKSTEP_INLINE std::vector<Parameter> parameters(const detail::TensorWalk& walk) {
  walk.for_each_with_plain(detail::check_no_plain_leaf);
  return detail::tensors_of_type<Parameter>(walk);
}

LOCKSTEP_INLINE std::vector<Buffer> buffers(const detail::TensorWalk& walk) {
  return detail::tensors_of_type<Buffer>(walk);
}

LOCKSTEP_INLINE void zero_grad(const detail::TensorWalk& module) {
  bool replica = false;
  const std::vector<Parameter> parameters = detail::tensors_of_type<Parameter>(module);
  for (const Parameter& parameter : parameters) {
    replica = replica || !parameter.is_leaf();
    parameter.set_grad({});
  }
  if (replica) {
    warn(
        "Calling zero_grad() from a module created with DataParallel has no effect. The "
        "parameters are copied (in a differentiable manner) from the original module. This means "
        "they are not leaf nodes in autograd and so don't accumulate gradients. If you need "
        "gradients in your forward method, consider using autograd::grad instead.");
  }
}

LOCKSTEP_INLINE void to(const detail::TensorWalk& module, Device device) {
  struct Move {
    Tensor tensor;
    Tensor data;
    Tensor grad;
  };
  const auto copy = [device](const Tensor& tensor) {
    if (detail::is_uninitialized(tensor)) {
      return detail::uninitialized_tensor({.dtype = tensor.dtype(), .device = device});
    }
    if (tensor.is_sparse()) return detail::concatenated({tensor}, device);
    return detail::copy_as(tensor, {.dtype = tensor.dtype(), .device = device});
  };
  const InferenceModeGuard normal(false);  // gradients outlive the mode that this call is in
  std::vector<Move> moves;
  const auto plan = [&](const Tensor& tensor) {
    if (tensor.device() == device) return;
    if (tensor.is_sparse()) {
      detail::fail<ValueError>(
          "to: expected dense parameters and buffers, got a sparse one of shape ", tensor.sizes(),
          " on ", tensor.device());
    }
    if (!tensor.is_leaf()) {  // (An uninitialised one has no shape to be named.)
      detail::fail<AutogradError>("to: a tensor of shape ", tensor.sizes(), " on ", tensor.device(),
                                  " is the result of a recorded operation: only leaves are moved");
    }
    const Tensor grad = tensor.grad();
    if (grad.defined()) {
      detail::check_gradient("to: a gradient", grad, "belongs to a parameter", tensor);
    }
    moves.push_back({tensor, copy(tensor), grad.defined() ? copy(grad) : Tensor()});
  };
  for (const Parameter& parameter : lockstep::parameters(module)) plan(parameter);
  for (const Buffer& buffer : lockstep::buffers(module)) plan(buffer);
  for (const Move& move : moves) {
    move.tensor.set_data(move.data);
    move.tensor.set_grad(move.grad);
  }
}

}  // namespace lockstep
