// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
#include <utility>

// How a wrapper with one device or none calls its module.
namespace lockstep::detail {

// Throws a DeviceError for a tensor of a Scattered that is not on the device. Other arguments may
// be anywhere.
template <class T>
void check_part_on(const T& argument, Device device, const nested::Path& path) {
  if constexpr (is_scattered<T>) {
    const auto look = [device](const auto& leaf, const nested::Path& where) {
      nested::check_part_device(0, leaf, device, where);
    };
    nested::for_each_leaf(nested::unwrapped(argument), path, look);
  }
}

// Calls a module with the arguments moved to its device, and returns its own result.
template <class M, class... Args>
auto call_with_moved(M& module, Device device, const Args&... args) {
  nested::require_scatterable_arguments<Args...>();
  if constexpr (nested::ScatterableArguments<Args...>) {
    [[maybe_unused]] std::size_t index = 0;
    const nested::Path root("args");
    (check_part_on(args, device, nested::Path(root, index++)), ...);
    const profile::RecordFunction range("apply", device);
    const auto call = [&](const auto&... moved) { return detail::forward(module, moved...); };
    return call(nested::on_device(args, device)...);
  } else {
    return Tensor();
  }
}

// The same, but a ModuleError unless the module is on the device.
template <class M, class... Args>
auto call_on(M& module, Device device, const Args&... args) {
  check_module_device(module, device);
  return call_with_moved(module, device, args...);
}

// Returns a single module's result as gather would, but in its own shape and moved to `target` if
// there is one.
template <class Output>
Gathered<Output> gather_one(Output output, std::optional<Device> target) {
  if constexpr (nested::PlainValue<Output>) {
    return {std::move(output)};
  } else {
    if (target) nested::move_to(output, *target);
    return output;
  }
}

}  // namespace lockstep::detail
