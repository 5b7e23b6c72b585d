// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <type_traits>
#include <utility>

namespace lockstep::detail::nested {

inline auto moving_to(Device device) {
  return [device]<class Leaf>(Leaf& leaf, const Path& /*path*/) {
    if (!is_on(leaf, device)) leaf = tensor_traits<Leaf>::broadcast(leaf, {device})[0];
  };
}

// Moves every tensor in `value` to `device`, differentiably, unless it is there already.
template <class T>
void move_to(T& value, Device device) {
  const auto move = moving_to(device);
  for_each_leaf(value, Path("output"), move);
}

// An argument as the module takes it in a call that divides nothing, its tensors wherever they are.
// A ValueError for a Scattered of several parts.
template <class T>
const T& unwrapped(const T& argument) {
  return argument;
}
template <class T>
const T& unwrapped(const Kwargs<T>& argument) {
  return argument.values;
}
template <class T>
const T& unwrapped(const Scattered<T>& argument) {
  check<ValueError>(argument.size() == 1, "an argument is scattered over ", argument.size(),
                    " devices, but there is one");
  return argument[0];
}

// What the module gets for an argument of type T: the part of a Scattered, the values of Kwargs, or
// else a T.
template <class T>
using PartOf = std::remove_cvref_t<decltype(unwrapped(std::declval<const T&>()))>;

// The same, with its tensors moved to `device`; a Scattered's only part stays where it is.
template <class T>
PartOf<T> on_device(const T& argument, Device device) {
  PartOf<T> result = unwrapped(argument);
  if constexpr (!is_scattered<T>) move_to(result, device);
  return result;
}

}  // namespace lockstep::detail::nested
