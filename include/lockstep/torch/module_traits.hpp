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
#include <utility>
#include <vector>

namespace lockstep::libtorch {

// A module of LibTorch's.
template <class Net>
concept TorchModule = std::derived_from<Net, ::torch::nn::Module>;

// What TORCH_MODULE declares, such as torch::nn::Linear.
template <class Holder>
concept ModuleHolder = requires {
  typename Holder::ContainedType;
  requires TorchModule<typename Holder::ContainedType>;
  requires std::derived_from<Holder, ::torch::nn::ModuleHolder<typename Holder::ContainedType>>;
};

namespace detail {

template <class Net>
std::vector<std::shared_ptr<Net>> replicated(const std::shared_ptr<Net>& module,
                                             const std::vector<Device>& devices, bool detach) {
  check_devices(devices);
  lockstep::check<ModuleError>(module != nullptr, "replicate: the pointer to the module is null");
  const std::vector<ModulePtr> replicas =
      detach ? detached_replicas(module, devices)
             : ReplicaSet(module, devices, {}).refresh(devices.size());
  std::vector<std::shared_ptr<Net>> result;
  for (const ModulePtr& replica : replicas) {
    result.push_back(std::dynamic_pointer_cast<Net>(replica));
  }
  return result;
}

}  // namespace detail

}  // namespace lockstep::libtorch

namespace lockstep {

// LibTorch's modules for replicate and parallel_apply: pointers to them, and holders.
//
// The first replica is the module itself, or with `detach` a copy in its memory. Copies are made by
// clone(), without drawing other random numbers than the module has; a module without it is a
// ModuleError.
template <libtorch::TorchModule Net>
struct module_traits<std::shared_ptr<Net>> {
  template <class... Args>
  static auto forward(const std::shared_ptr<Net>& module, const Args&... args) requires requires {
    { module->forward(args...) } -> std::move_constructible;
  }
  { return module->forward(args...); }

  static std::optional<Device> device(const std::shared_ptr<Net>& module) {
    const auto tensors = libtorch::detail::tensors_of(*module);
    if (tensors.empty()) return std::nullopt;
    return libtorch::detail::lockstep_device(tensors[0].tensor);
  }
  static std::vector<std::shared_ptr<Net>> replicate(const std::shared_ptr<Net>& module,
                                                     const std::vector<Device>& devices,
                                                     bool detach) {
    return libtorch::detail::replicated(module, devices, detach);
  }
};

template <libtorch::ModuleHolder Holder>
struct module_traits<Holder> {
  using Net = typename Holder::ContainedType;
  using Pointers = module_traits<std::shared_ptr<Net>>;

  template <class... Args>
  static auto forward(const Holder& module, const Args&... args) requires requires {
    Pointers::forward(module.ptr(), args...);
  }
  { return Pointers::forward(module.ptr(), args...); }

  static std::optional<Device> device(const Holder& module) {
    return Pointers::device(module.ptr());
  }
  static std::vector<Holder> replicate(const Holder& module, const std::vector<Device>& devices,
                                       bool detach) {
    std::vector<Holder> holders;
    for (auto& replica : Pointers::replicate(module.ptr(), devices, detach)) {
      holders.emplace_back(std::move(replica));
    }
    return holders;
  }
};

}  // namespace lockstep
