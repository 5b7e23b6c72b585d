// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/warning.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

// What a module consists of, by name. These take anything whose members can be found: a module, a
// struct that only holds layers, a std::vector of them.
namespace lockstep {

template <class T>
struct Named {
  std::string name;
  T tensor;
};

using NamedTensor = Named<Tensor>;
using NamedParameter = Named<Parameter>;
using NamedBuffer = Named<Buffer>;

namespace detail {

template <class T>
inline constexpr TensorKind kind_of =
    std::is_same_v<T, Parameter> ? TensorKind::parameter : TensorKind::buffer;

// Every Parameter, or every Buffer, once, under its first name; absent ones are left out.
template <class T, class M>
std::vector<Named<T>> named_tensors(const M& module) {
  std::vector<Named<T>> result;
  std::unordered_set<const TensorImpl*> seen;
  walk_tensors(module, [&](const std::string& path, const Tensor& tensor, TensorKind kind) {
    if (kind == kind_of<T> && tensor.defined() && seen.insert(tensor.impl().get()).second) {
      result.push_back({path, static_cast<const T&>(tensor)});
    }
  });
  return result;
}

// Whether two of the handles from `first` on name one variable.
template <class T>
bool names_one_twice(const std::vector<T>& handles, std::size_t first) {
  constexpr std::size_t kFew = 16;  // comparing these with each other costs less than sorting them
  if (handles.size() - first <= kFew) {
    for (std::size_t i = first; i < handles.size(); ++i) {
      for (std::size_t j = first; j < i; ++j) {
        if (handles[i].is_same(handles[j])) return true;
      }
    }
    return false;
  }
  std::vector<const TensorImpl*> variables;
  variables.reserve(handles.size() - first);
  for (std::size_t i = first; i < handles.size(); ++i) variables.push_back(handles[i].impl().get());
  std::sort(variables.begin(), variables.end());
  return std::adjacent_find(variables.begin(), variables.end()) != variables.end();
}

// Leaves the first handle on each variable, of those from `first` on.
template <class T>
void drop_repeated(std::vector<T>& handles, std::size_t first) {
  if (!names_one_twice(handles, first)) return;
  std::unordered_set<const TensorImpl*> seen;
  const auto repeated = [&seen](const T& handle) {
    return !seen.insert(handle.impl().get()).second;
  };
  const auto begin = handles.begin() + static_cast<std::ptrdiff_t>(first);
  handles.erase(std::remove_if(begin, handles.end(), repeated), handles.end());
}

// The same without names, for which nothing is allocated: what is asked at every step of training.
// Behind what `result` has already.
template <class T, class M, class Handle>
void append_tensors(std::vector<Handle>& result, const M& module) {
  constexpr std::size_t kUsual = 8;
  const std::size_t first = result.size();
  if (first == 0) result.reserve(kUsual);
  const auto append = [&](const std::string& /*path*/, const Tensor& tensor, TensorKind kind) {
    if (kind == kind_of<T> && tensor.defined()) result.push_back(static_cast<const T&>(tensor));
  };
  walk_tensors(module, append, Paths::none);
  drop_repeated(result, first);
}

template <class T, class M>
std::vector<T> tensors(const M& module) {
  std::vector<T> result;
  append_tensors<T>(result, module);
  return result;
}

}  // namespace detail

// The module's parameters with their names, in the order of declaration.
//
// Tied parameters (the same tensor under several names) are listed once, under the first; absent
// ones and null pointers are left out. The entries are handles: they stay the module's parameters.
//
// **Torch counterpart.** Module.named_parameters.
// **Threads and exceptions.** A ModuleError for a map key that cannot be part of a name, and for a
// pointer to a base class of the module that it holds.
// **Example.** for (const auto& [name, parameter] : named_parameters(net)) { ... }
template <class M>
std::vector<NamedParameter> named_parameters(const M& module) {
  return detail::named_tensors<Parameter>(module);
}

// **Torch counterpart.** Module.named_buffers.
template <class M>
std::vector<NamedBuffer> named_buffers(const M& module) {
  return detail::named_tensors<Buffer>(module);
}

// **Torch counterpart.** Module.parameters.
template <class M>
std::vector<Parameter> parameters(const M& module) {
  return detail::tensors<Parameter>(module);
}

// **Torch counterpart.** Module.buffers.
template <class M>
std::vector<Buffer> buffers(const M& module) {
  return detail::tensors<Buffer>(module);
}

// Calls `visitor(const std::string& path, module&)` for the module (path "") and every module
// within it, the outer before the inner. One that several std::shared_ptrs own is visited once.
//
// **Torch counterpart.** Module.named_modules.
template <class M, class Visitor>
void for_each_module(M& module, Visitor&& visitor) {
  detail::walk_module(module, [&]<class Node>(const std::string& path, Node& node) {
    using Plain = std::remove_const_t<Node>;
    if constexpr (!std::derived_from<Plain, Tensor> &&
                  (HasForward<Plain> || HasCallOperator<Plain>)) {
      visitor(path, node);
    }
  });
}

// Sets the member `bool training` of the module and of everything within it that has one: a public
// member, or one that the type's visit_members gives.
//
// **Torch counterpart.** Module.train.
template <class M>
void train(M& module, bool on = true) {
  detail::walk_module(module, [on]<class Node>(const std::string& /*path*/, Node& node) {
    if constexpr (detail::HasTraining<Node>) {
      node.training = on;
    } else if constexpr (HasVisitMembers<Node>) {
      for_each_member(node, [on]<class Member>(std::string_view name, Member& member) {
        if constexpr (std::is_same_v<Member, bool>) {
          if (name == "training") member = on;
        }
      });
    }
  });
}

// **Torch counterpart.** Module.eval.
template <class M>
void eval(M& module) {
  train(module, false);
}

// Drops the gradients of all parameters: grad() is undefined until the next backward.
//
// Inside the forward of a replica it has no effect, and a warning says so: a replica's parameters
// are results of an operation, whose gradients are the original's.
//
// **Torch counterpart.** Module.zero_grad (with its default set_to_none = true).
template <class M>
void zero_grad(const M& module) {
  bool replica = false;
  for (const Parameter& parameter : parameters(module)) {
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

// Moves all parameters, with their gradients, and all buffers to `device`, in place: every handle
// on them sees the move, so that an optimiser made earlier stays valid.
//
// Tied tensors stay tied. Plain Tensor members stay where they are.
//
// **Torch counterpart.** Module.to(device).
// **Devices and streams.** The copies are issued to the current streams (see copy_into).
// **Backward.** Not recorded. A graph recorded before must not be used for backward any more.
// **Threads and exceptions.** All or nothing: if memory runs out, everything is where it was.
template <class M>
void to(M& module, Device device) {
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
    const Tensor result = empty(tensor.sizes(), {.dtype = tensor.dtype(), .device = device});
    detail::copy_into(result, tensor);
    return result;
  };
  std::vector<Move> moves;
  const auto plan = [&](const Tensor& tensor) {
    if (tensor.device() == device) return;
    const Tensor grad = tensor.grad();
    moves.push_back({tensor, copy(tensor), grad.defined() ? copy(grad) : Tensor()});
  };
  for (const Parameter& parameter : parameters(module)) plan(parameter);
  for (const Buffer& buffer : buffers(module)) plan(buffer);
  for (const Move& move : moves) {
    move.tensor.set_data(move.data);
    move.tensor.set_grad(move.grad);
  }
}

}  // namespace lockstep
