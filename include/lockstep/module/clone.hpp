// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/copyable.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <map>
#include <memory>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

// Deep copies of modules, and the part of copying that replicate shares.
namespace lockstep {

namespace detail {

// Makes a copy of a module share no module object with the original. Each std::shared_ptr to what
// may hold parts of a module gets a copy of its object, one per object, so that sub-modules shared
// in the original are shared in the copy. Tensors stay handles on the same tensors; other objects
// stay shared, as the copy constructor leaves them.
class UnsharingVisitor {
 public:
  template <class Node>
  void operator()(const nested::Path& /*path*/, Node& /*node*/) const {}

  template <class T>
  void shared(const std::shared_ptr<T>& /*slot*/) const {
    static_assert(!std::is_same_v<T, T>,
                  "lockstep: a module that is cloned or replicated holds its sub-modules in "
                  "std::shared_ptrs that are not const");
  }

  template <class T>
  void shared(std::shared_ptr<T>& slot) {
    using Object = std::remove_const_t<T>;
    static_assert(CopyableModule<Object>,
                  "lockstep: a sub-module in a std::shared_ptr cannot be copied: hold what is in "
                  "it by value, in std::optional or in std::shared_ptr instead of std::unique_ptr");
    if constexpr (CopyableModule<Object>) {
      std::shared_ptr<void>& copy = copies_[{slot.get(), typeid(Object)}];
      if (!copy) copy = std::make_shared<Object>(*slot);
      slot = std::static_pointer_cast<Object>(copy);
    }
  }

 private:
  using Key = std::pair<const void*, std::type_index>;

  // The copy of each of the original's objects.
  std::map<Key, std::shared_ptr<void>> copies_;
};

// Copies of variables, on the same device, one per variable. Variables that are the same view of
// one memory get copies that share memory, too.
class TensorCopies : NonCopyable {
 public:
  Tensor of(const Tensor& original);

 private:
  struct Memory {
    Tensor original;
    Tensor copy;
  };

  Tensor on_copied_memory(const Tensor& original);

  std::unordered_map<const TensorImpl*, Tensor> variables_;
  std::multimap<const Storage*, Memory> memories_;
};

// Turns a copy of a module into a deep copy, in one walk.
class CloningVisitor : public UnsharingVisitor {
 public:
  explicit CloningVisitor(const TensorWalk& original);

  template <class Node>
  void operator()(const nested::Path& path, Node& node) {
    if constexpr (std::derived_from<std::remove_const_t<Node>, Tensor>) {
      static_assert(!std::is_const_v<Node>,
                    "lockstep: a module that is cloned holds its parameters, buffers and "
                    "sub-modules as members that are not const");
      Tensor& handle = node;
      check_is_copys_own(path, handle);
      if (handle.defined()) handle = tensors_.of(handle);
    } else if constexpr (requires { node.unshare(states_, tensors_); }) {
      node.unshare(states_, tensors_);
    }
  }

 private:
  // Throws for a handle that the original has, too: changing it would change the original.
  void check_is_copys_own(const nested::Path& path, const Tensor& handle) const;

  std::unordered_set<const Tensor*> originals_;  // the handles of the original
  TensorCopies tensors_;
  std::map<const void*, std::shared_ptr<void>> states_;  // see PerReplica::unshare
};

}  // namespace detail

// Returns a deep copy of the module: training the copy leaves the original as it is, and vice
// versa.
//
// Parameters, buffers, sub-modules in std::shared_ptrs and PerReplica values get memory of their
// own, on the same devices. Tied tensors stay tied, frozen parameters stay frozen; gradients and
// hooks are not copied. Whatever a walk over the module does not find stays shared, as the copy
// constructor leaves it: plain Tensor members, raw pointers, captures of hooks.
//
// **Torch counterpart.** copy.deepcopy(module), without the gradients.
// **Devices and streams.** Copies on the current streams.
// **Backward.** Not recorded. The copy's tensors are normal leaves, even in inference mode.
// **Threads and exceptions.** As named_parameters; a ModuleError for a module whose visit_members
// lists what a pointer points to. A module that cannot be copied does not compile.
// **Example.** Net average = ls::clone(model.module());
template <class M>
M clone(const M& module) {
  detail::require_copyable<M>();
  if constexpr (detail::CopyableModule<M>) {
    M copy(module);
    detail::walk_module(copy, detail::CloningVisitor(module));
    return copy;
  } else {
    detail::fail<ModuleError>("the module cannot be copied");  // the program does not compile
  }
}

// Returns a copy of a state dict that training does not change. (What `state_dict` returns refers
// to the tensors of the module or the optimiser.)
//
// **Torch counterpart.** copy.deepcopy(state_dict).
// **Devices and streams.** On the same devices; copies on the current streams.
// **Example.** if (accuracy > highest) best = ls::clone(model.state_dict());
StateDict clone(const StateDict& dict);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/impl/clone.ipp>
#endif
