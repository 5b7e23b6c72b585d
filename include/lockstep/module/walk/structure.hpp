// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/reflect.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// Defines nested values: which types are structures, what their children are, and how to reach
// them. Everything that goes through values builds on it: the walk over a module, scatter and
// gather, prefetch and collate. Another container of one of these forms takes part by specialising
// `Structure`, and in collate by an overload of collate_children, which says what its batch is.
namespace lockstep::detail::nested {

enum class Form {
  none,
  tuple,     // a pair, too
  list,      // std::array, std::vector
  map,       // std::map, std::unordered_map
  optional,  // one child or none
  variant,   // one child, of the type of the alternative that it holds
  members    // a plain struct
};

template <Form which, class... Child>
struct StructureOf {
  static constexpr Form form = which;
  using Children = std::tuple<Child...>;
};

// The structures of the standard library, with the types of their children. A std::vector of
// numbers is a value.
template <class T>
struct Structure : StructureOf<Form::none> {};
template <class... T>
struct Structure<std::tuple<T...>> : StructureOf<Form::tuple, T...> {};
template <class First, class Second>
struct Structure<std::pair<First, Second>> : StructureOf<Form::tuple, First, Second> {};
template <class T, std::size_t n>
struct Structure<std::array<T, n>> : StructureOf<Form::list, T> {};
template <class T, class Allocator>
requires(!std::is_arithmetic_v<T>) struct Structure<std::vector<T, Allocator>>
    : StructureOf<Form::list, T> {
};
template <class Key, class T, class... More>
struct Structure<std::map<Key, T, More...>> : StructureOf<Form::map, T> {};
template <class Key, class T, class... More>
struct Structure<std::unordered_map<Key, T, More...>> : StructureOf<Form::map, T> {};
template <class T>
struct Structure<std::optional<T>> : StructureOf<Form::optional, T> {};
template <class... T>
struct Structure<std::variant<T...>> : StructureOf<Form::variant, T...> {};

// A plain struct whose fields can be found by reflection, but not one of the library's own handles,
// nor a module or functor, whose tensors are not rows of a batch.
template <class T>
concept StructLike = std::is_class_v<T> && std::is_aggregate_v<T> && !HasForward<T> &&
                     !HasCallOperator<T> && Reflectable<T>;

template <class T>
consteval Form find_form() {
  constexpr Form form = Structure<T>::form;
  if constexpr (form == Form::none && StructLike<T>) return Form::members;
  return form;
}

template <class T>
inline constexpr Form form_of = find_form<T>();

// The steps from a structure to its children. `step(other)` is the same child of another value of
// this structure, which must have it.
template <std::size_t i>
struct Element {
  auto& operator()(auto& tuple) const { return std::get<i>(tuple); }
};
template <std::size_t i>
struct Member {
  auto& operator()(auto& object) const { return std::get<i>(tie_members(object)); }
};
template <std::size_t i>
struct Alternative {
  auto& operator()(auto& variant) const { return *std::get_if<i>(&variant); }
};
struct At {
  std::size_t index;
  decltype(auto) operator()(auto& list) const { return list[index]; }
};
template <class Key>
struct AtKey {
  const Key& key;
  auto& operator()(auto& map) const { return map.find(key)->second; }
};
struct Held {
  auto& operator()(auto& optional) const { return *optional; }
};

// The entries of a map, in an order that is the same for all maps with the same keys: the map's own
// if its type determines that, else that of the keys.
template <class Map>
auto sorted_entries(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  entries.reserve(map.size());
  for (auto& entry : map) entries.push_back(&entry);
  if constexpr (!requires { requires std::is_empty_v<typename Map::key_compare>; }) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto* a, const auto* b) { return a->first < b->first; });
  }
  return entries;
}

template <class Key>
std::string key_text(const Key& key) {
  if constexpr (std::convertible_to<const Key&, std::string_view>) {
    return std::string(std::string_view(key));
  } else {
    return str(key);
  }
}

// Calls `visit(name, child, step)` for each child of `value`, in an order that depends only on the
// structure. `name` is an index, a std::string_view of a key or of a member's name, or Unnamed.
// Children are const if `value` is.
template <class T, class Visit>
void for_each_child(T& value, const Visit& visit) {
  using Plain = std::remove_const_t<T>;
  constexpr Form form = form_of<Plain>;
  if constexpr (form == Form::tuple) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (visit(i, std::get<i>(value), Element<i>()), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Plain>>());
  } else if constexpr (form == Form::list) {
    for (std::size_t i = 0; i < value.size(); ++i) visit(i, value[i], At{i});
  } else if constexpr (form == Form::map) {
    for (auto* entry : sorted_entries(value)) {
      const std::string name = key_text(entry->first);
      visit(std::string_view(name), entry->second, AtKey<typename Plain::key_type>{entry->first});
    }
  } else if constexpr (form == Form::optional) {
    if (value) visit(Unnamed(), *value, Held());
  } else if constexpr (form == Form::variant) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      ((value.index() == i ? visit(Unnamed(), *std::get_if<i>(&value), Alternative<i>()) : void()),
       ...);
    }
    (std::make_index_sequence<std::variant_size_v<Plain>>());
  } else if constexpr (form == Form::members) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      [[maybe_unused]] const auto members = tie_members(value);
      (visit(member_name<Plain, i>, std::get<i>(members), Member<i>()), ...);
    }
    (std::make_index_sequence<member_count<Plain>>());
  }
}

}  // namespace lockstep::detail::nested
