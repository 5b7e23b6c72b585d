// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

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

// Nested arguments and results: which types are structure, and where their tensors are.
namespace lockstep::detail::nested {

// Where in a structure a walk is: a list of steps on the stack, made into text only for an error
// message: args[1].mask
class Path {
 public:
  explicit Path(std::string_view root) : name_(root) {}
  Path(const Path& parent, std::string_view member) : parent_(&parent), name_(member) {}
  Path(const Path& parent, std::size_t index) : parent_(&parent), index_(index) {}

  std::string str() const {
    if (!parent_) return std::string(name_);
    return name_.data() ? parent_->str() + '.' + std::string(name_)
                        : parent_->str() + '[' + std::to_string(index_) + ']';
  }

 private:
  const Path* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

template <class T, template <class...> class Template>
inline constexpr bool is_specialization = false;
template <template <class...> class Template, class... Args>
inline constexpr bool is_specialization<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class T>
concept TupleLike = is_specialization<T, std::tuple> || is_specialization<T, std::pair>;
template <class T>
concept MapLike = is_specialization<T, std::map> || is_specialization<T, std::unordered_map>;
template <class T>
concept ListLike = is_std_array<T> ||
    (is_specialization<T, std::vector> && !std::is_arithmetic_v<typename T::value_type>);
// A plain struct whose fields can be found; the library's own handles are no such thing.
template <class T>
concept StructLike = std::is_class_v<T> && std::is_aggregate_v<T> && Reflectable<T>;

// The entries of a map in the order of their keys, so that two maps with the same keys are walked
// alike whatever their layout.
template <class Map>
auto sorted_entries(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  for (auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
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

// Calls `visit(leaf, path)` for every tensor in `value` that is defined, in an order that depends
// on the structure alone. Works on a const and on a mutable value; whatever is no structure is
// passed over.
template <class T, class Visit>
void for_each_leaf(T& value, const Path& path, Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (TensorLike<Plain>) {
    if (tensor_traits<Plain>::defined(value)) visit(value, path);
  } else if constexpr (std::derived_from<Plain, Tensor>) {  // a Parameter, a Buffer
    for_each_leaf(
        static_cast<std::conditional_t<std::is_const_v<T>, const Tensor&, Tensor&>>(value), path,
        visit);
  } else if constexpr (TupleLike<Plain>) {
    std::apply(
        [&](auto&... elements) {
          std::size_t i = 0;
          (for_each_leaf(elements, Path(path, i++), visit), ...);
        },
        value);
  } else if constexpr (ListLike<Plain>) {
    std::size_t i = 0;
    for (auto& element : value) for_each_leaf(element, Path(path, i++), visit);
  } else if constexpr (MapLike<Plain>) {
    for (auto* entry : sorted_entries(value)) {
      const std::string key = key_text(entry->first);
      for_each_leaf(entry->second, Path(path, key), visit);
    }
  } else if constexpr (is_specialization<Plain, std::optional>) {
    if (value) for_each_leaf(*value, path, visit);
  } else if constexpr (is_specialization<Plain, std::variant>) {
    std::visit([&](auto& alternative) { for_each_leaf(alternative, path, visit); }, value);
  } else if constexpr (StructLike<Plain>) {
    for_each_member(value, [&](std::string_view name, auto& member) {
      for_each_leaf(member, Path(path, name), visit);
    });
  }
}

// Throws a ValueError unless two results have the same structure: as many elements, the same keys,
// the same alternatives, values present in both or in neither.
template <class T>
void check_same_structure(const T& a, const T& b, const Path& path, std::size_t replica) {
  if constexpr (TensorLike<T>) {
    check<ValueError>(tensor_traits<T>::defined(a) == tensor_traits<T>::defined(b),
                      "gather: ", path.str(), " is a tensor in one of replica 0 and replica ",
                      replica, ", and undefined in the other");
  } else if constexpr (std::derived_from<T, Tensor>) {
    check_same_structure(static_cast<const Tensor&>(a), static_cast<const Tensor&>(b), path,
                         replica);
  } else if constexpr (TupleLike<T>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_same_structure(std::get<I>(a), std::get<I>(b), Path(path, I), replica), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (ListLike<T>) {
    check<ValueError>(a.size() == b.size(), "gather: ", path.str(), " has ", a.size(),
                      " elements in replica 0, but ", b.size(), " in replica ", replica);
    for (std::size_t i = 0; i < a.size(); ++i) {
      check_same_structure(a[i], b[i], Path(path, i), replica);
    }
  } else if constexpr (MapLike<T>) {
    check<ValueError>(a.size() == b.size(),
                      "All dicts must have the same number of keys: gather: ", path.str(), " has ",
                      a.size(), " in replica 0, but ", b.size(), " in replica ", replica);
    for (const auto& [key, value] : a) {
      const auto other = b.find(key);
      check<ValueError>(other != b.end(), "gather: ", path.str(), " has the key ", key_text(key),
                        " in replica 0, but not in replica ", replica);
      check_same_structure(value, other->second, Path(path, key_text(key)), replica);
    }
  } else if constexpr (is_specialization<T, std::optional>) {
    check<ValueError>(a.has_value() == b.has_value(), "gather: ", path.str(),
                      a ? " has a value in replica 0, but none in replica "
                        : " has no value in replica 0, but one in replica ",
                      replica);
    if (a) check_same_structure(*a, *b, path, replica);
  } else if constexpr (is_specialization<T, std::variant>) {
    check<ValueError>(a.index() == b.index(), "gather: ", path.str(), " holds alternative ",
                      a.index(), " in replica 0, but ", b.index(), " in replica ", replica);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (
          [&] {
            if (a.index() == I)
              check_same_structure(*std::get_if<I>(&a), *std::get_if<I>(&b), path, replica);
          }(),
          ...);
    }
    (std::make_index_sequence<std::variant_size_v<T>>{});
  } else if constexpr (StructLike<T>) {
    const auto mine = tie_members(a);
    const auto theirs = tie_members(b);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_same_structure(std::get<I>(mine), std::get<I>(theirs), Path(path, member_name<T, I>),
                            replica),
       ...);
    }
    (std::make_index_sequence<member_count<T>>{});
  }
}

}  // namespace lockstep::detail::nested
