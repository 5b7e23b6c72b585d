// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// What a module consists of, by name. These functions take anything whose members can be found: a
// module, a struct that only holds layers, a std::vector of them. All of these convert to a
// TensorWalk.
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

// All parameters and buffers, in the order in which a walk meets them.
std::vector<Tensor> tensors_of(const TensorWalk& module);

// Throws a ModuleError that names the first plain leaf (a Tensor member that requires grad but is
// no Parameter, so that training would miss it), or else the first uninitialised parameter or
// buffer, which `user` cannot use.
void check_parameters(const TensorWalk& module, const char* user = "DataParallel");

}  // namespace detail

// Returns the module's parameters with their names, in the order of declaration.
//
// The entries are handles on the module's parameters. Tied parameters (one tensor under several
// names) are listed once, under the first; absent ones and null pointers are left out.
//
// **Torch counterpart.** Module.named_parameters, which lists a module's own parameters before
// those of its sub-modules: order and indices differ if one is declared after a sub-module.
// **Threads and exceptions.** A ModuleError for a map key that cannot be part of a name, for a
// pointer to a base class of its object, and for a plain Tensor that is a leaf and requires grad,
// which torch silently leaves out.
// **Example.** for (const auto& [name, parameter] : named_parameters(net)) { ... }
std::vector<NamedParameter> named_parameters(const detail::TensorWalk& module);

// Returns the module's buffers with their names, listed as named_parameters lists parameters.
//
// **Torch counterpart.** Module.named_buffers.
std::vector<NamedBuffer> named_buffers(const detail::TensorWalk& module);

// Returns the module's parameters as named_parameters lists them, without names.
//
// **Torch counterpart.** Module.parameters.
// **Threads and exceptions.** As named_parameters.
std::vector<Parameter> parameters(const detail::TensorWalk& module);

// Returns the module's buffers as named_buffers lists them, without names.
//
// **Torch counterpart.** Module.buffers.
std::vector<Buffer> buffers(const detail::TensorWalk& module);

// Calls `visitor(const std::string& path, module&)` for the module (path "") and every module
// within it, outer before inner. One that several std::shared_ptrs own is visited once.
//
// **Torch counterpart.** Module.named_modules.
template <class M, class Visitor>
void for_each_module(M& module, Visitor&& visitor) {
  detail::walk_module(module, [&]<class Node>(const detail::nested::Path& path, Node& node) {
    using Plain = std::remove_const_t<Node>;
    if constexpr (!std::derived_from<Plain, Tensor> &&
                  (HasForward<Plain> || HasCallOperator<Plain>)) {
      visitor(path.name(), node);
    }
  });
}

// Sets the member `bool training` of the module and of everything within it that has one, as a
// public member or listed by visit_members. None of these may be const.
//
// **Torch counterpart.** Module.train.
template <class M>
void train(M& module, bool on = true) {
  const auto set_training = [on]<class Node>([[maybe_unused]] const detail::nested::Path& path,
                                             Node& node) {
    static_assert(!std::is_const_v<Node> || !detail::HasTraining<std::remove_const_t<Node>>,
                  "lockstep: `training` of a module that is const cannot be set: pass train and "
                  "eval one, and hold its sub-modules as members and in pointers, that are not "
                  "const");
    if constexpr (detail::HasTraining<Node>) {
      node.training = on;
    } else if constexpr (HasVisitMembers<Node>) {
      for_each_member(node, [&]<class Member>(std::string_view name, Member& member) {
        if constexpr (std::is_same_v<Member, bool>) {
          if (name == "training") member = on;
        } else if constexpr (std::is_same_v<Member, const bool>) {
          check<ModuleError>(name != "training", "train: the module \"", path.name(),
                             "\" is const");
        }
      });
    }
  };
  detail::walk_module(module, set_training);
}

// Sets to false the members that `train` sets.
//
// **Torch counterpart.** Module.eval.
template <class M>
void eval(M& module) {
  lockstep::train(module, false);
}

// Drops the gradients of all parameters: grad() is undefined until the next backward.
//
// It has no effect, and warns, inside a replica's forward: a replica's parameters are results of an
// operation, whose gradients belong to the original.
//
// **Torch counterpart.** Module.zero_grad (with its default set_to_none = true).
void zero_grad(const detail::TensorWalk& module);

// Moves all parameters, with their gradients, and all buffers to `device`, in place: every handle
// sees the move, so an optimiser made earlier stays valid.
//
// Tied tensors stay tied, and what is moved becomes contiguous. Plain Tensor members stay where
// they are.
//
// **Torch counterpart.** Module.to(device), which keeps channels_last.
// **Devices and streams.** Copies on the current streams (see copy_into).
// **Backward.** Not recorded. Do not call backward through a graph recorded before.
// **Threads and exceptions.** As named_parameters; and, for tensors on other devices, a ValueError
// for a sparse one, an AutogradError for a non-leaf (as in a replica), and a ShapeError, DtypeError
// or DeviceError for a gradient that does not fit. After an exception, or if memory runs out,
// nothing has moved.
void to(const detail::TensorWalk& module, Device device);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/impl/parameters.ipp>
#endif
