// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Throws a ModuleError unless all parameters and buffers of the module are on `device`. Names are
// only made where one is not.
template <class M>
void check_module_device(const M& module, Device device) {
  bool everywhere = true;
  walk_module<Paths::none>(module, [&]<class Node>(const Node& node) {
    if constexpr (std::derived_from<Node, Tensor>) {
      everywhere = everywhere && (!node.defined() || node.device() == device);
    }
  });
  if (everywhere) return;
  const auto look = [device](const auto& named, const char* kind) {
    for (const auto& [name, tensor] : named) {
      check<ModuleError>(tensor.device() == device,
                         "module must have its parameters and buffers on device ", device,
                         " (device_ids[0]) but found one of them on device: ", tensor.device(),
                         " (", kind, " \"", name, "\")");
    }
  };
  look(named_parameters(module), "parameter");
  look(named_buffers(module), "buffer");
}

// All parameters and buffers of a module, each once.
template <class M>
std::vector<Tensor> tensors_of(const M& module) {
  std::vector<Tensor> tensors;
  for (Parameter& parameter : parameters(module)) tensors.push_back(std::move(parameter));
  for (Buffer& buffer : buffers(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

// All parameters and buffers of the module, if there are any, are on plain `cpu`: it can be put on
// any device.
template <class M>
bool is_on_host_memory(const M& module) {
  bool everywhere = true;
  walk_module<Paths::none>(module, [&]<class Node>(const Node& node) {
    if constexpr (std::derived_from<Node, Tensor>) {
      everywhere = everywhere && (!node.defined() || node.device().is_host_memory());
    }
  });
  return everywhere;
}

// Copies of the module that use copies[i][j] in place of originals[j]. Unless `detach`, gradients
// flow from the copies of what requires grad back to the originals.
template <class M>
std::vector<M> make_replicas(const M& module, const std::vector<Tensor>& originals,
                             std::vector<std::vector<Tensor>> copies,
                             const std::vector<Device>& devices, bool detach) {
  std::vector<Tensor> trained;
  std::vector<std::size_t> places;
  std::unordered_map<const TensorImpl*, std::size_t> place_of;
  for (std::size_t j = 0; j < originals.size(); ++j) {
    place_of.emplace(originals[j].impl().get(), j);
    if (!originals[j].requires_grad()) continue;
    trained.push_back(originals[j]);
    places.push_back(j);
  }
  if (!detach && is_grad_enabled() && !trained.empty()) {
    functions::Broadcast broadcast{devices};
    for (const auto& of_device : copies) {
      auto& row = broadcast.copies.emplace_back();
      for (const std::size_t j : places) row.push_back(of_device[j]);
    }
    const std::vector<Tensor> flat = lockstep::apply(std::move(broadcast), trained);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (std::size_t p = 0; p < places.size(); ++p) {
        copies[i][places[p]] = flat[i * places.size() + p];
      }
    }
  } else {
    // Or the replica on the originals' device would be the only one to hold what requires grad.
    for (auto& of_device : copies) {
      for (const std::size_t j : places) of_device[j] = of_device[j].detach();
    }
  }

  std::vector<M> replicas;
  replicas.reserve(devices.size());
  bool has_callback = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    walk_module<Paths::none>(
        replicas.emplace_back(clone_structure(module)), [&]<class Node>(Node& node) {
          if constexpr (std::derived_from<std::remove_const_t<Node>, Tensor>) {
            static_assert(!std::is_const_v<Node>,
                          "lockstep: a module that is replicated holds its parameters, buffers and "
                          "sub-modules as members that are not const");
            // A handle that two pointers lead to has its copy already when it is met again.
            const auto place = place_of.find(node.impl().get());
            if (place != place_of.end()) static_cast<Tensor&>(node) = copies[i][place->second];
          } else if constexpr (HasReplicationCallback<Node>) {
            has_callback = true;
          }
        });
  }
  if (has_callback) execute_replication_callbacks(replicas, devices);
  return replicas;
}

}  // namespace detail

// One copy of the module for each device, with its parameters and buffers there.
//
// Replicas are real modules: parameters() lists theirs, tied ones stay tied. On devices[0], where
// the module must be, the replica shares the module's memory: what forward writes into its buffers
// stays. On every other device, and where a device is listed again, it has copies. Frozen
// parameters stay frozen; other members are copied with the module's copy constructor. With
// `detach` no replica's parameter requires grad.
//
// **Torch counterpart.** torch.nn.parallel.replicate, whose replicas have no parameters().
// **Devices and streams.** comm::broadcast_coalesced: one flat buffer a device and dtype.
// **Backward.** The replicas' gradients are summed into the module's parameters, in the order of
// the devices; a parameter that no replica used gets none.
// **Threads and exceptions.** ModuleError naming a parameter that is not on devices[0], or is not
// initialised yet.
template <class M>
std::vector<M> replicate(const M& module, const std::vector<Device>& devices, bool detach = false) {
  detail::require_module<M>();
  if (devices.empty()) return {};
  const profile::RecordFunction range("replicate");
  detail::check_initialized(module);
  detail::check_module_device(module, devices[0]);
  const std::vector<Tensor> originals = detail::tensors_of(module);
  return detail::make_replicas(module, originals, comm::broadcast_coalesced(originals, devices),
                               devices, detach);
}

}  // namespace lockstep
