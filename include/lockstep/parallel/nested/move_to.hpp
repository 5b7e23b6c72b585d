// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

namespace lockstep::detail::nested {

struct MoveLeaf {
  Device device;

  template <class Leaf>
  void operator()(Leaf& leaf, const Path& /*path*/) const {
    if (!is_on(leaf, device)) leaf = tensor_traits<Leaf>::broadcast(leaf, {device})[0];
  }
};

// Moves every tensor in `value` to `device`, differentiably; those that are there already stay.
template <class T>
void move_to(T& value, Device device) {
  const MoveLeaf move{device};
  for_each_leaf(value, Path("output"), move);
}

// An argument as the module takes it in a call that is not divided: with its tensors moved to
// `device`.
template <class T>
T on_device(const T& argument, Device device) {
  T result = argument;
  move_to(result, device);
  return result;
}
template <class T>
T on_device(const Kwargs<T>& argument, Device device) {
  return on_device(argument.values, device);
}

// An argument as the module takes it in a call that is not divided, its tensors wherever they are.
// A ValueError for a Scattered of several parts.
template <class T>
const T& undivided(const T& argument) {
  return argument;
}
template <class T>
const T& undivided(const Kwargs<T>& argument) {
  return argument.values;
}
template <class T>
const T& undivided(const Scattered<T>& argument) {
  check<ValueError>(argument.size() == 1, "an argument is scattered over ", argument.size(),
                    " devices, but there is one");
  return argument[0];
}
// A Scattered's only part stays where it is.
template <class T>
T on_device(const Scattered<T>& argument, Device /*device*/) {
  return undivided(argument);
}

}  // namespace lockstep::detail::nested
