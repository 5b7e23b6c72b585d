// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <string_view>
#include <type_traits>

// Walks nested arguments and results to the tensors in them, the leaves.
namespace lockstep::detail::nested {

// A number, an enumerator or a string: no structure, and comparable.
template <class T>
concept PlainValue =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::convertible_to<const T&, std::string_view>;

// Calls `visit(leaf, path)` for every defined tensor in `value`, const or not, in an order that
// depends only on the structure. Skips what is neither tensor nor structure. Ignores the hook
// visit_members, which shows a module's members.
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
  } else {
    for_each_child(value, [&](const auto& name, auto& child, const auto& /*step*/) {
      for_each_leaf(child, Path(path, name), visit);
    });
  }
}

}  // namespace lockstep::detail::nested
