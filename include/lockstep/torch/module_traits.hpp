// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/replica_set.hpp>

#include <torch/torch.h>

#include <concepts>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::libtorch {

// A module of LibTorch's.
template <class Net>
concept TorchModule = std::derived_from<Net, ::torch::nn::Module>;

namespace detail {

// The pointer in a handle: itself, or that of what TORCH_MODULE declares, such as
// torch::nn::Linear.
template <TorchModule Net>
const std::shared_ptr<Net>& pointer_of(const std::shared_ptr<Net>& module) {
  return module;
}
template <TorchModule Net>
const std::shared_ptr<Net>& pointer_of(const ::torch::nn::ModuleHolder<Net>& holder) {
  return holder.ptr();
}

template <class Handle>
using NetOf = std::remove_reference_t<decltype(*detail::pointer_of(std::declval<const Handle&>()))>;

}  // namespace detail

// A handle on a module of LibTorch's: a shared_ptr, or what TORCH_MODULE declares.
template <class Handle>
concept ModuleHandle = requires {
  typename detail::NetOf<Handle>;
};

}  // namespace lockstep::libtorch

namespace lockstep {

// Lets replicate and parallel_apply take handles on LibTorch's modules.
//
// The first replica is the module itself, or with `detach` a copy on its memory. Copies are made by
// clone(), without advancing the random numbers. A module without clone() is a ModuleError, as is
// one with a Linear, Bilinear, embedding or convolution that has another layer's weight.
template <libtorch::ModuleHandle Handle>
struct module_traits<Handle> {
  using Net = libtorch::detail::NetOf<Handle>;

  template <class... Args>
  static auto forward(const Handle& module, const Args&... args) requires requires(Net& net) {
    { net.forward(args...) } -> std::move_constructible;
  }
  { return libtorch::detail::pointer_of(module)->forward(args...); }

  static std::optional<Device> device(const Handle& module) {
    const auto tensors = libtorch::detail::tensors_of(*libtorch::detail::pointer_of(module));
    if (tensors.empty()) return std::nullopt;
    return libtorch::detail::lockstep_device(tensors[0].tensor);
  }
  static std::vector<Handle> replicate(const Handle& handle, const std::vector<Device>& devices,
                                       bool detach) {
    const std::shared_ptr<Net>& module = libtorch::detail::pointer_of(handle);
    libtorch::detail::check_devices(devices);
    check<ModuleError>(module != nullptr, "replicate: the pointer to the module is null");
    const std::vector<libtorch::detail::ModulePtr> replicas =
        detach ? libtorch::detail::detached_replicas(module, devices)
               : libtorch::detail::ReplicaSet(module, devices, {}).refresh(devices.size());
    std::vector<Handle> handles;
    for (const auto& replica : replicas) {
      handles.emplace_back(std::dynamic_pointer_cast<Net>(replica));
    }
    return handles;
  }
};

}  // namespace lockstep
