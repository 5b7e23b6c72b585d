// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/module/walk/walk_rules.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
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
#include <vector>

namespace lockstep::detail {

// What a walk does with an object that several std::shared_ptrs of the module own: `once` visits it
// under its first name only, `under_every_name` under each (but never inside itself, so that a walk
// over a cycle ends).
enum class SharedNodes { once, under_every_name };

// Whether a walk makes the paths of what it visits. Without, it allocates nothing for them, and
// every path is empty.
enum class Paths { build, none };

// The path of the node that a walk has come to.
class WalkPath {
 public:
  explicit WalkPath(Paths paths) : built_(paths == Paths::build) {}

  const std::string& text() const { return text_; }

  // One more name, key or index at the end of the path, while it exists.
  class Part : NonCopyable {
   public:
    Part(WalkPath& path, std::string_view name) : path_(path), length_(path.text_.size()) {
      if (path.built_) path.append(name);
    }
    Part(WalkPath& path, std::integral auto index) : path_(path), length_(path.text_.size()) {
      if (path.built_) path.append(std::to_string(index));
    }
    ~Part() {
      if (path_.built_) path_.text_.resize(length_);
    }

   private:
    WalkPath& path_;
    const std::size_t length_;
  };

 private:
  void append(std::string_view part) {
    if (!text_.empty()) text_ += '.';
    text_ += part;
  }

  const bool built_;
  std::string text_;
};

// Walks over the members of a module, depth first in the order of declaration.
//
// `visitor(const std::string& path, node&)` is called for every Parameter and Buffer, and for every
// class whose members are walked, before its members. A visitor that has `shared(slot)` gets every
// non-null std::shared_ptr to something walkable first, and may replace it; one that has
// `plain(path, tensor)` gets every plain Tensor, if its `sees_plain()` says so. Nodes are const
// where the module or an owner on the way is. Paths are torch's: member names, indices and map
// keys, joined with dots; pointers, optional and variant add nothing.
template <class Visitor>
class Walker {
 public:
  Walker(Visitor& visitor, Paths paths, SharedNodes shared_nodes)
      : visitor_(visitor), shared_nodes_(shared_nodes), path_(paths) {}

  template <class T>
  void walk(T& node) {
    constexpr NodeKind kind = node_kind<T>;
    if constexpr (kind == NodeKind::tensor) {
      visitor_(path_.text(), node);
    } else if constexpr (kind == NodeKind::wrapper) {
      visitor_(path_.text(), node);
      walk_if_walkable(std::remove_const_t<T>::wrapped_module(node));
    } else if constexpr (kind == NodeKind::members) {
      visitor_(path_.text(), node);
      for_each_member(
          node, [this](std::string_view name, auto& member) { this->walk_child(name, member); });
    } else if constexpr (kind == NodeKind::unique_owner) {
      if (node) walk_owned<std::is_const_v<T>>(*node);
    } else if constexpr (kind == NodeKind::shared_owner) {
      if (node) walk_shared(node);
    } else if constexpr (kind == NodeKind::structure) {
      nested::for_each_child(node, [this](auto name, auto& child, const auto& /*step*/) {
        this->walk_child(name, child);
      });
    } else if constexpr (kind == NodeKind::map) {
      walk_map(node);
    } else {
      static_assert(kind == NodeKind::array || kind == NodeKind::sequence);
      std::size_t index = 0;
      for (auto& element : node) walk_child(index++, element);
    }
  }

 private:
  template <class T>
  void walk_if_walkable(T& node) {
    if constexpr (walkable<T>) {
      walk(node);
    } else {
      skip_node(node);
    }
  }

  // Leaves out a node that is no part of the module. The visitor may see the plain tensors in it.
  template <class T>
  void skip_node(T& node) {
    using Plain = std::remove_const_t<T>;
    require_no_hidden_parameters<Plain>();
    if constexpr (holds_plain_tensors<Plain> && requires { visitor_.sees_plain(); }) {
      if (!visitor_.sees_plain()) return;
      if constexpr (std::derived_from<Plain, Tensor>) {
        visitor_.plain(path_.text(), node);
      } else if constexpr (node_kind<T> == NodeKind::map) {
        for (auto& [key, value] : node) skip_node(value);  // the keys need not be names
      } else {
        walk(node);
      }
    }
  }

  // What an optional or a variant holds has no name of its own.
  template <class T>
  void walk_child(nested::Unnamed /*name*/, T& child) {
    walk_if_walkable(child);
  }

  // `name` is a member's name, a key or an index.
  template <class Name, class T>
  void walk_child(const Name& name, T& child) {
    if constexpr (!walkable<T> && !holds_plain_tensors<std::remove_const_t<T>>) {
      require_no_hidden_parameters<std::remove_const_t<T>>();
    } else {
      const WalkPath::Part part(path_, name);
      walk_if_walkable(child);
    }
  }

  template <bool owner_is_const, class T>
  void walk_owned(T& owned) {
    if constexpr (std::is_polymorphic_v<T> && !std::is_final_v<T>) {
      check<ModuleError>(typeid(owned) == typeid(T), "the object that \"", path_.text(),
                         "\" points to is a ", typeid(owned).name(), ", and only the members of ",
                         typeid(T).name(),
                         " can be found through the pointer: point to the class itself, or hold "
                         "a std::variant");
    }
    if constexpr (owner_is_const) {
      walk_if_walkable(std::as_const(owned));
    } else {
      walk_if_walkable(owned);
    }
  }

  template <class Slot>
  void walk_shared(Slot& slot) {
    if constexpr (requires { visitor_.shared(slot); }) visitor_.shared(slot);
    auto& owned = *slot;
    const Seen key{std::addressof(owned), typeid(owned)};
    if (!seen_.insert(key).second) return;
    walk_owned<std::is_const_v<Slot>>(owned);
    if (shared_nodes_ == SharedNodes::under_every_name) seen_.erase(key);
  }

  // Hash maps are walked in the order of their keys, so that equal modules give equal orders.
  template <class Map>
  void walk_map(Map& map) {
    using Key = typename Map::key_type;
    static_assert(std::convertible_to<const Key&, std::string_view> || std::integral<Key>,
                  "lockstep: a map of modules or parameters needs strings or integers as keys: "
                  "they become part of the parameters' names");
    std::vector<std::pair<Key, decltype(std::addressof(map.begin()->second))>> entries;
    for (auto& [key, value] : map) entries.emplace_back(key, std::addressof(value));
    if constexpr (!requires { typename Map::key_compare; }) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    for (const auto& [key, value] : entries) {
      if constexpr (std::integral<Key>) {
        walk_child(key, *value);
      } else {
        const std::string_view name = key;
        check<ModuleError>(!name.empty() && name.find('.') == std::string_view::npos,
                           "a key of the map \"", path_.text(),
                           "\" cannot be part of a parameter's name, ",
                           "as it is empty or has a dot: \"", name, "\"");
        walk_child(name, *value);
      }
    }
  }

  using Seen = std::pair<const void*, std::type_index>;

  Visitor& visitor_;
  const SharedNodes shared_nodes_;
  WalkPath path_;
  std::set<Seen> seen_;  // objects of shared_ptrs that were visited (for every name: are being)
};

// The visitor of walks that only look at tensors: calls `fn(path, tensor, kind)` for each parameter
// and buffer, and with PlainTensors::see for each plain Tensor, too (see TensorWalk).
enum class TensorKind { parameter, buffer, plain };
enum class PlainTensors { skip, see };

class TensorVisitor {
 public:
  template <class Fn>
  explicit TensorVisitor(const Fn& fn, PlainTensors plain = PlainTensors::skip)
      : fn_(&fn),
        call_([](const void* f, const std::string& path, const Tensor& tensor, TensorKind kind) {
          (*static_cast<const Fn*>(f))(path, tensor, kind);
        }),
        plain_(plain) {}

  template <class Node>
  void operator()(const std::string& path, const Node& node) const {
    if constexpr (std::derived_from<Node, Tensor>) {
      constexpr bool trained = std::derived_from<Node, Parameter>;
      call_(fn_, path, node, trained ? TensorKind::parameter : TensorKind::buffer);
    }
  }

  bool sees_plain() const { return plain_ == PlainTensors::see; }
  void plain(const std::string& path, const Tensor& tensor) const {
    call_(fn_, path, tensor, TensorKind::plain);
  }

 private:
  const void* fn_;
  void (*call_)(const void* fn, const std::string& path, const Tensor& tensor, TensorKind kind);
  PlainTensors plain_;
};

// Walks over `module`. Its type has to be clearer than a member's: since it is meant to be a
// module, it is refused also if nobody can tell whether it holds parameters (a lambda that captures
// more than numbers and pointers, a std::function).
template <class M, class Visitor>
void walk_module(M& module, Visitor&& visitor, Paths paths = Paths::build,
                 SharedNodes shared_nodes = SharedNodes::once) {
  if constexpr (walkable<M>) {
    Walker<std::remove_reference_t<Visitor>> walker(visitor, paths, shared_nodes);
    if (paths == Paths::build) {
      walker.walk(module);
      return;
    }
    try {
      walker.walk(module);
    } catch (const ModuleError&) {
      // Walks once more, for a message that says where; an error of the visitor's stays as it is.
      const auto nothing = [](const std::string& /*path*/, const Tensor& /*tensor*/, TensorKind) {};
      const TensorVisitor names(nothing);
      Walker<const TensorVisitor>(names, Paths::build, shared_nodes).walk(std::as_const(module));
      throw;
    }
  } else {
    require_walkable_module<std::remove_const_t<M>>();
  }
}

}  // namespace lockstep::detail
