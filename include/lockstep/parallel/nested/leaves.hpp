// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// Nested arguments and results: which types are structures, and a walk to the tensors in them, the
// leaves.
namespace lockstep::detail::nested {

// Where in a structure a walk is, as a list of steps on the stack: args[1].mask
class Path {
 public:
  explicit Path(std::string_view root) : name_(root) {}
  Path(const Path& parent, std::string_view member) : parent_(&parent), name_(member) {}
  Path(const Path& parent, std::size_t index) : parent_(&parent), index_(index) {}

  // Made without a std::ostream, which is slow: a plan keeps the text of a path for each call's
  // arguments.
  std::string text() const;
  friend std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.text();
  }

 private:
  void append_to(std::string& steps) const;

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
// A plain struct whose fields can be found by reflection. The library's own handles are none, and
// neither is a module or functor: its tensors have no rows of a batch.
template <class T>
concept StructLike = std::is_class_v<T> && std::is_aggregate_v<T> && !HasForward<T> &&
                     !HasCallOperator<T> && Reflectable<T>;

// A number, an enumerator or a string: never structure, and comparable.
template <class T>
concept PlainValue =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::convertible_to<const T&, std::string_view>;

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
// on the structure alone. `value` may be const or not; what is neither tensor nor structure is
// passed over.
template <class T, class Visit>
void for_each_leaf(T& value, const Path& path, Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (shared_by_replicas<Plain>) {
    return;
  } else if constexpr (TensorLike<Plain>) {
    if (tensor_traits<Plain>::defined(value)) visit(value, path);
  } else if constexpr (HasTensorTraits<Plain>) {
    require_whole_traits<Plain>();
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

}  // namespace lockstep::detail::nested

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/nested/impl/leaves.ipp>
#endif
