// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Throws a ModuleError unless all parameters and buffers of the module are on `device`.
template <class M>
void check_module_device(const M& module, Device device) {
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

// A module's tensors, and what each device has in their place.
class ReplicaTensors {
 public:
  // `differentiable` ones pass gradients back to the originals; the others are plain copies.
  void add(const std::vector<Tensor>& originals, const std::vector<Device>& devices,
           bool differentiable) {
    if (originals.empty()) return;
    std::vector<Tensor> flat;
    if (differentiable) {
      flat = lockstep::apply(functions::Broadcast{devices}, originals);
    } else {
      for (auto& copies : comm::broadcast_coalesced(originals, devices)) {
        for (Tensor& copy : copies) flat.push_back(std::move(copy));
      }
    }
    for (std::size_t j = 0; j < originals.size(); ++j) {
      auto& copies = copies_[originals[j].impl().get()];
      for (std::size_t i = 0; i < devices.size(); ++i) {
        copies.push_back(flat[i * originals.size() + j]);
      }
    }
  }

  const Tensor& at(const Tensor& original, std::size_t replica) const {
    return copies_.at(original.impl().get())[replica];
  }

 private:
  std::unordered_map<const TensorImpl*, std::vector<Tensor>> copies_;
};

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
// **Backward.** The replicas' gradients are summed into the module's parameters, in the order of the
// devices; a parameter that no replica used gets none.
// **Threads and exceptions.** ModuleError naming the parameter that is not on devices[0].
template <class M>
std::vector<M> replicate(const M& module, const std::vector<Device>& devices, bool detach = false) {
  detail::require_module<M>();
  std::vector<M> replicas;
  if (devices.empty()) return replicas;
  detail::check_module_device(module, devices[0]);

  std::vector<Tensor> trained;
  std::vector<Tensor> fixed;
  const auto sort = [&](const Tensor& tensor) {
    (tensor.requires_grad() && !detach && is_grad_enabled() ? trained : fixed).push_back(tensor);
  };
  for (const Parameter& parameter : parameters(module)) sort(parameter);
  for (const Buffer& buffer : buffers(module)) sort(buffer);
  detail::ReplicaTensors tensors;
  tensors.add(trained, devices, true);
  tensors.add(fixed, devices, false);

  replicas.reserve(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    M& replica = replicas.emplace_back(clone_structure(module));
    rebind(replica, [&]<class Handle>(std::string_view, Handle& handle) {
      const Tensor& mine = tensors.at(handle, i);
      // Without a graph, replica 0 would be the only one to hold tensors that require grad.
      const bool cut = handle.requires_grad() && !mine.grad_fn();
      static_cast<Tensor&>(handle) = cut ? mine.detach() : mine;
    });
  }
  return replicas;
}

}  // namespace lockstep
