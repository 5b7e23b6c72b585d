// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/module/walk/walk_rules.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace lockstep::detail {

// How a walk treats an object that several std::shared_ptrs of the module own: `once` visits it
// under its first name, `under_every_name` under each (but never inside itself, so that a walk over
// a cycle ends).
enum class SharedNodes { once, under_every_name };

// Walks over the members of a module, depth first in the order of declaration.
//
// Calls `visitor(const nested::Path& path, node&)` for every Parameter and Buffer, and for every
// class whose members are walked, before its members. A visitor with `shared(slot)` first gets
// every non-null std::shared_ptr to what may hold module parts, and may replace it; one with
// `plain(path, tensor)` gets every plain Tensor if its `sees_plain` is true. Nodes are const if the
// module or an owner on the way is. Names are torch's: member names, indices and map keys, joined
// by dots.
template <class Visitor>
class Walker {
 public:
  Walker(Visitor& visitor, SharedNodes shared_nodes)
      : visitor_(visitor), shared_nodes_(shared_nodes) {}

  template <class T>
  void walk(const nested::Path& path, T& node) {
    constexpr NodeKind kind = node_kind<T>;
    if constexpr (kind == NodeKind::tensor) {
      visitor_(path, node);
    } else if constexpr (kind == NodeKind::wrapper) {
      visitor_(path, node);
      walk_if_walkable(path, std::remove_const_t<T>::wrapped_module(node));
    } else if constexpr (kind == NodeKind::members) {
      visitor_(path, node);
      for_each_member(node, [&](std::string_view name, auto& member) {
        this->walk_if_walkable(nested::Path(path, name), member);
      });
    } else if constexpr (kind == NodeKind::unique_owner) {
      if (node) walk_owned<std::is_const_v<T>>(path, *node);
    } else if constexpr (kind == NodeKind::shared_owner) {
      if (node) walk_shared(path, node);
    } else if constexpr (kind == NodeKind::structure) {
      nested::for_each_child(node, [&](auto name, auto& child, const auto& /*step*/) {
        this->walk_if_walkable(nested::Path(path, name), child);
      });
    } else if constexpr (kind == NodeKind::map) {
      walk_map(path, node);
    } else {
      static_assert(kind == NodeKind::sequence);
      std::size_t index = 0;
      for (auto& element : node) walk_if_walkable(nested::Path(path, index++), element);
    }
  }

 private:
  template <class T>
  void walk_if_walkable(const nested::Path& path, T& node) {
    if constexpr (walkable<T>) {
      walk(path, node);
    } else {
      skip_node(path, node);
    }
  }

  // Skips a node that is not part of the module, except that the visitor may see plain tensors in
  // it.
  template <class T>
  void skip_node(const nested::Path& path, T& node) {
    using Plain = std::remove_const_t<T>;
    require_no_hidden_parameters<Plain>();
    if constexpr (holds_plain_tensors<Plain> && requires { visitor_.sees_plain; }) {
      if (!visitor_.sees_plain) return;
      if constexpr (std::derived_from<Plain, Tensor>) {
        visitor_.plain(path, node);
      } else if constexpr (node_kind<T> == NodeKind::map) {
        for (auto& [key, value] : node) skip_node(path, value);  // the keys need not be names
      } else {
        walk(path, node);
      }
    }
  }

  // Throws if a pointer leads to a base class of the object.
  template <class T>
  static void require_whole(const nested::Path& path, T& owned) {
    if constexpr (std::is_polymorphic_v<T> && !std::is_final_v<T>) {
      if (typeid(owned) != typeid(T)) {
        fail<ModuleError>("the object that \"", path.name(), "\" points to is a ",
                          typeid(owned).name(), ", and only the members of ", typeid(T).name(),
                          " can be found through the pointer: point to the class itself, or hold "
                          "a std::variant");
      }
    }
  }

  template <bool owner_is_const, class T>
  void walk_owned(const nested::Path& path, T& owned) {
    require_whole(path, owned);
    walk_if_walkable(path, static_cast<std::conditional_t<owner_is_const, const T&, T&>>(owned));
  }

  template <class Slot>
  void walk_shared(const nested::Path& path, Slot& slot) {
    require_whole(path, *slot);
    if constexpr (requires { visitor_.shared(slot); }) {
      if constexpr (holds_module_parts<typename Slot::element_type>) visitor_.shared(slot);
    }
    auto& owned = *slot;
    const Seen key{std::addressof(owned), typeid(owned)};
    if (!seen_.insert(key).second) return;
    walk_owned<std::is_const_v<Slot>>(path, owned);
    if (shared_nodes_ == SharedNodes::under_every_name) seen_.erase(key);
  }

  template <class Map>
  void walk_map(const nested::Path& path, Map& map) {
    using Key = typename Map::key_type;
    static_assert(std::convertible_to<const Key&, std::string_view> || std::integral<Key>,
                  "lockstep: a map of modules or parameters needs strings or integers as keys: "
                  "they become part of the parameters' names");
    for (auto* const entry : nested::sorted_entries(map)) {
      if constexpr (std::integral<Key>) {
        const std::string name = std::to_string(entry->first);
        walk_if_walkable(nested::Path(path, std::string_view(name)), entry->second);
      } else {
        const std::string_view name = entry->first;
        if (name.empty() || name.find('.') != std::string_view::npos) {
          fail<ModuleError>("a key of the map \"", path.name(),
                            "\" cannot be part of a parameter's name, ",
                            "as it is empty or has a dot: \"", name, "\"");
        }
        walk_if_walkable(nested::Path(path, name), entry->second);
      }
    }
  }

  using Seen = std::pair<const void*, std::type_index>;

  Visitor& visitor_;
  const SharedNodes shared_nodes_;
  std::set<Seen> seen_;  // objects of shared_ptrs visited so far (under_every_name: being visited)
};

// The visitor of walks that only look at tensors: calls `fn(path, tensor, kind)` for each parameter
// and buffer and, if it `sees_plain`, for each plain Tensor (see TensorWalk).
enum class TensorKind { parameter, buffer, plain };

struct TensorVisitor {
  using Function =
      FunctionRef<void(const nested::Path& path, const Tensor& tensor, TensorKind kind)>;

  Function fn;
  bool sees_plain = false;

  template <class Node>
  void operator()(const nested::Path& path, const Node& node) const {
    if constexpr (std::derived_from<Node, Tensor>) {
      constexpr bool trained = std::derived_from<Node, Parameter>;
      fn(path, node, trained ? TensorKind::parameter : TensorKind::buffer);
    }
  }
  void plain(const nested::Path& path, const Tensor& tensor) const {
    fn(path, tensor, TensorKind::plain);
  }
};

// Walks over `module`. Unlike a member, it is meant to be a module, so it is also refused if nobody
// can tell whether it holds parameters (a lambda that captures more than numbers and pointers, a
// std::function).
template <class M, class Visitor>
void walk_module(M& module, Visitor&& visitor, SharedNodes shared_nodes = SharedNodes::once) {
  if constexpr (walkable<M>) {
    Walker<std::remove_reference_t<Visitor>>(visitor, shared_nodes).walk(nested::Path(""), module);
  } else {
    require_walkable_module<std::remove_const_t<M>>();
  }
}

}  // namespace lockstep::detail
