// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/concepts.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>

// What replicate is made of: a copy that shares no object with the original, and then another
// tensor for each of its handles.
namespace lockstep {

namespace detail {

// Gives every std::shared_ptr that the walk comes by an object of its own, one for each object of
// the original, so that shared sub-modules stay shared within the copy.
class UnsharingVisitor {
 public:
  template <class Node>
  void operator()(const std::string& /*path*/, Node& /*node*/) const {}

  template <class T>
  void shared(const std::shared_ptr<T>& /*slot*/) const {
    static_assert(!std::is_same_v<T, T>,
                  "lockstep: a module that is cloned or replicated holds its sub-modules in "
                  "std::shared_ptrs that are not const");
  }

  template <class T>
  void shared(std::shared_ptr<T>& slot) {
    using Object = std::remove_const_t<T>;
    static_assert(std::copy_constructible<Object>,
                  "lockstep: a sub-module in a std::shared_ptr cannot be copied: hold what is in "
                  "it by value, in std::optional or in std::shared_ptr instead of std::unique_ptr");
    if constexpr (std::copy_constructible<Object>) {
      std::shared_ptr<void>& copy = copies_[{slot.get(), typeid(Object)}];
      if (!copy) copy = std::make_shared<Object>(*slot);
      slot = std::static_pointer_cast<Object>(copy);
    }
  }

 private:
  using Key = std::pair<const void*, std::type_index>;

  // From each object of the original to its copy.
  std::map<Key, std::shared_ptr<void>> copies_;
};

}  // namespace detail

// A copy of the module, made with its copy constructor, in which std::shared_ptrs to modules,
// parameters and containers of such own copies, too.
//
// Sub-modules that are tied in the original (one object, several pointers) are tied in the copy.
// The copy shares no module object with the original, but its tensors are handles on the same
// tensors until rebind gives it others. What is no module and holds none (a tokenizer, a mutex in a
// std::shared_ptr, raw pointers) is shared, as the copy constructor leaves it.
//
// **Torch counterpart.** What replicate does before it sets the replicas' parameters.
template <class M>
M clone_structure(const M& module) {
  detail::require_copyable<M>();
  M copy(module);
  detail::walk_module(copy, detail::UnsharingVisitor{}, detail::Paths::none);
  return copy;
}

// Calls `fn(std::string_view path, handle)` with every Parameter& and Buffer& of the module that is
// not absent, to let it put another tensor into the handle: `Tensor& slot = handle; slot = other;`.
//
// Each handle comes once, even if several std::shared_ptrs lead to it; tied tensors come once for
// each of their handles, as all have to be replaced.
template <class M, class Fn>
void rebind(M& module, Fn&& fn) {
  std::set<const void*> seen;
  detail::walk_module(module, [&]<class Node>(const std::string& path, Node& node) {
    if constexpr (std::derived_from<std::remove_const_t<Node>, Tensor>) {
      static_assert(!std::is_const_v<Node>,
                    "lockstep: a module that is replicated holds its parameters, buffers and "
                    "sub-modules as members that are not const");
      if (node.defined() && seen.insert(std::addressof(node)).second) {
        fn(std::string_view(path), node);
      }
    }
  });
}

}  // namespace lockstep
