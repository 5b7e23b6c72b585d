// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

// Conversion between lockstep's devices and LibTorch's. A host device, `cpu:0` or `cpu:1`, is
// LibTorch's one CPU: a place in a list, and a thread, but no memory of its own.
namespace lockstep::libtorch::detail {

inline at::Device at_device(Device device) {
  if (device.is_cpu()) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(device.index)};
}

// The tensor's device; a DeviceError for hardware that lockstep does not have.
inline Device lockstep_device(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return Device();
  lockstep::check<DeviceError>(tensor.is_cuda(), "lockstep knows CPUs and CUDA devices; this ",
                               "tensor of LibTorch is on ", tensor.device().str());
  return Device(DeviceType::cuda, tensor.device().index());
}

// The GPU that LibTorch names; without an index the current one, or the first if there is none.
inline Device gpu_of(at::Device device) {
  if (!device.has_index() && ::torch::cuda::device_count() > 0) {
    device = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  }
  return Device(DeviceType::cuda, std::max<int>(device.index(), 0));
}

// True if LibTorch has the tensor on this device.
inline bool is_on(const at::Tensor& tensor, Device device) {
  return tensor.device() == at_device(device);
}

// The tensor on this device; itself if it is there already. Differentiable. A copy to the CPU has
// ended, since LibTorch orders nothing there.
inline at::Tensor moved(const at::Tensor& tensor, Device device) {
  if (is_on(tensor, device)) return tensor;
  return tensor.to(at_device(device), /*non_blocking=*/!device.is_cpu());
}

// Throws a ValueError for no devices, and a DeviceError for a GPU that LibTorch does not have.
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
