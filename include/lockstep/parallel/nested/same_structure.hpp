// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Checks that gather can put the results of several replicas together, by comparing each with the
// first.
namespace lockstep::detail::nested {

template <class T>
inline constexpr bool is_list_of_numbers = false;
template <class T>
requires std::is_arithmetic_v<T>
inline constexpr bool is_list_of_numbers<std::vector<T>> = true;
template <class T, std::size_t n>
requires std::is_arithmetic_v<T>
inline constexpr bool is_list_of_numbers<T[n]> = true;

template <class T>
bool same_value(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool nan = is_nan(static_cast<double>(a));
    return nan == is_nan(static_cast<double>(b)) && (nan || a == b);
  } else if constexpr (std::is_pointer_v<T>) {  // C strings
    return a && b ? std::string_view(a) == std::string_view(b) : a == b;
  } else {
    return a == b;
  }
}

template <class T>
std::string value_text(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return str(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_pointer_v<T>) {
    return value ? str(value) : "null";
  } else {
    return str(value);
  }
}

// Throws a ValueError unless two results have the same number of children, the same alternative,
// and both a value or neither.
template <class T>
void check_same_children(const T& a, const T& b, const Path& path, std::size_t replica) {
  constexpr Form form = form_of<T>;
  if constexpr (form == Form::list || form == Form::map) {
    check<ValueError>(a.size() == b.size(),
                      form == Form::map ? "All dicts must have the same number of keys: " : "",
                      "gather: ", path, " has ", a.size(), " elements in replica 0, but ", b.size(),
                      " in replica ", replica);
  } else if constexpr (form == Form::optional) {
    check<ValueError>(a.has_value() == b.has_value(), "gather: ", path,
                      a ? " has a value in replica 0, but none in replica "
                        : " has no value in replica 0, but one in replica ",
                      replica);
  } else if constexpr (form == Form::variant) {
    check<ValueError>(a.index() == b.index(), "gather: ", path, " holds alternative ", a.index(),
                      " in replica 0, but ", b.index(), " in replica ", replica);
  }
}

// Throws a ValueError unless two results have the same structure, down to the plain values in it.
// Does not compile for a type of which only replica 0's object would be kept, unless
// shared_by_replicas allows it.
template <class T>
void check_same_structure(const T& a, const T& b, const Path& path, std::size_t replica) {
  if constexpr (shared_by_replicas<T>) {
    return;
  } else if constexpr (TensorLike<T>) {
    const bool defined = tensor_traits<T>::defined(a);
    check<ValueError>(defined == tensor_traits<T>::defined(b), "gather: ", path,
                      " is an undefined tensor in replica ", defined ? replica : 0,
                      ", but defined in replica ", defined ? 0 : replica);
  } else if constexpr (std::derived_from<T, Tensor>) {
    check_same_structure(static_cast<const Tensor&>(a), static_cast<const Tensor&>(b), path,
                         replica);
  } else if constexpr (form_of<T> != Form::none) {
    check_same_children(a, b, path, replica);
    for_each_child(a, [&](const auto& name, const auto& child, const auto& step) {
      if constexpr (form_of<T> == Form::map) {
        check<ValueError>(b.contains(step.key), "gather: ", path, " has the key ", name,
                          " in replica 0, but not in replica ", replica);
      }
      check_same_structure(child, step(b), Path(path, name), replica);
    });
  } else if constexpr (is_list_of_numbers<T>) {
    check<ValueError>(std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                                 same_value<std::iter_value_t<decltype(std::begin(a))>>),
                      "gather: the numbers of ", path, " are not the same in replica 0 and ",
                      "replica ", replica, ": to be gathered, they have to be a tensor");
  } else if constexpr (PlainValue<T>) {
    if (!same_value(a, b)) {
      fail<ValueError>("gather: ", path, " is ", value_text(a), " in replica 0, but ",
                       value_text(b), " in replica ", replica,
                       ": to be gathered, a value that differs has to be a tensor");
    }
  } else {
    static_assert(std::is_empty_v<T>,
                  "lockstep: gather: results of this type cannot be put together, and all but "
                  "replica 0's would be lost, since it is neither a tensor nor a structure of them "
                  "nor a plain value: return tensors (in std::vector, std::tuple or the public "
                  "members of a plain struct), specialise lockstep::tensor_traits for it, or set "
                  "lockstep::shared_by_replicas if it is the same in all replicas");
  }
}

}  // namespace lockstep::detail::nested
