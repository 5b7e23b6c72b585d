// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

// lockstep's devices and LibTorch's. A host device, `cpu:0` or `cpu:1`, is LibTorch's one CPU: it
// is a place in a list, and a thread, but has no memory of its own.
namespace lockstep::libtorch::detail {

inline at::Device at_device(Device device) {
  if (device.is_cpu()) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(device.index)};
}

// A DeviceError for a tensor on hardware that lockstep has no name for.
inline Device lockstep_device(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return Device();
  lockstep::check<DeviceError>(tensor.is_cuda(), "lockstep knows CPUs and CUDA devices; this ",
                               "tensor of LibTorch is on ", tensor.device().str());
  return Device(DeviceType::cuda, tensor.device().index());
}

// The GPU that LibTorch names; without an index it is the current one, or the first if there is
// none.
inline Device gpu_of(at::Device device) {
  if (!device.has_index() && ::torch::cuda::device_count() > 0) {
    device = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  }
  return Device(DeviceType::cuda, std::max<int>(device.index(), 0));
}

// Whether they are the same to LibTorch.
inline bool is_on(const at::Tensor& tensor, Device device) {
  return tensor.device() == at_device(device);
}

// The tensor there; itself, unless it is elsewhere. Differentiable. What is moved to the CPU has
// arrived: LibTorch orders nothing there.
inline at::Tensor moved(const at::Tensor& tensor, Device device) {
  if (is_on(tensor, device)) return tensor;
  return tensor.to(at_device(device), /*non_blocking=*/!device.is_cpu());
}

// A ValueError for no devices, and a DeviceError for a GPU that LibTorch has not.
inline void check_devices(const std::vector<Device>& devices) {
  lockstep::check<ValueError>(!devices.empty(), "Expected at least one device");
  for (const Device device : devices) {
    if (device.is_cpu()) continue;
    const auto gpus = static_cast<int>(::torch::cuda::device_count());
    lockstep::check<DeviceError>(device.index < gpus, "device ", device,
                                 " does not exist: this LibTorch has ", gpus, " CUDA devices");
  }
}

}  // namespace lockstep::libtorch::detail
