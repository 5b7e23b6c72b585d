// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <cstdio>
#include <map>
#include <string>
#include <string_view>

using cudasim::ApiCall;
using cudasim::Device;
using cudasim::Machine;

namespace {

bool exists(const Machine& machine, int device) {
  return device >= 0 && device < machine.config.devices;
}

// As much of a device as a program may want to know; like a small Hopper.
const std::map<cudaDeviceAttr, int>& attributes() {
  static const auto* const known = new std::map<cudaDeviceAttr, int>{
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMultiProcessorCount, 4},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrAsyncEngineCount, 2},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrComputeMode, cudaComputeModeDefault},
  };
  return *known;
}

// cuDevicePrimaryCtxGetState.
int context_state(int device, unsigned* flags, int* active) {
  const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
  const Machine& machine = cudasim::machine();
  if (!exists(machine, device)) return 101;  // CUDA_ERROR_INVALID_DEVICE
  *flags = 0;
  *active = machine.devices[static_cast<std::size_t>(device)].context ? 1 : 0;
  return 0;
}

}  // namespace

CUDASIM_API cudaGetDeviceCount(int* count) {
  return ApiCall("cudaGetDeviceCount").without_context().run([&](Machine& machine) {
    *count = machine.config.devices;
    return cudaSuccess;
  });
}

CUDASIM_API cudaGetDevice(int* device) {
  return ApiCall("cudaGetDevice").without_context().run([&](Machine&) {
    *device = cudasim::current_device();
    return cudaSuccess;
  });
}

CUDASIM_API cudaSetDevice(int device) {
  return ApiCall("cudaSetDevice").releasing().without_context().run([&](Machine& machine) {
    if (!exists(machine, device)) return cudaErrorInvalidDevice;
    cudasim::thread_state().device = device;
    machine.devices[static_cast<std::size_t>(device)].context = true;
    return cudaSuccess;
  });
}

CUDASIM_API cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return ApiCall("cudaGetDeviceProperties").without_context().run([&](Machine& machine) {
    if (!exists(machine, device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "Simulated GPU %d", device);
    properties->totalGlobalMem = machine.config.memory_bytes;
    properties->major = attributes().at(cudaDevAttrComputeCapabilityMajor);
    properties->minor = attributes().at(cudaDevAttrComputeCapabilityMinor);
    properties->multiProcessorCount = attributes().at(cudaDevAttrMultiProcessorCount);
    properties->maxThreadsPerBlock = attributes().at(cudaDevAttrMaxThreadsPerBlock);
    properties->warpSize = attributes().at(cudaDevAttrWarpSize);
    properties->asyncEngineCount = attributes().at(cudaDevAttrAsyncEngineCount);
    properties->memoryPoolsSupported = 1;
    properties->unifiedAddressing = 1;
    properties->concurrentKernels = 1;
    properties->pciBusID = device + 1;
    return cudaSuccess;
  });
}

CUDASIM_API cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return ApiCall("cudaDeviceGetAttribute").without_context().run([&](Machine& machine) {
    if (!exists(machine, device)) return cudaErrorInvalidDevice;
    const auto known = attributes().find(attribute);
    if (known == attributes().end()) {
      cudasim::report("NOT SIMULATED: device attribute " + std::to_string(attribute));
      return cudaErrorInvalidValue;
    }
    *value = known->second;
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemGetInfo(size_t* free, size_t* total) {
  return ApiCall("cudaMemGetInfo").run([&](Machine& machine) {
    *total = machine.config.memory_bytes;
    *free = *total - machine.reserved_bytes(cudasim::current_device());
    return cudaSuccess;
  });
}

CUDASIM_API cudaDriverGetVersion(int* version) {
  const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
  *version = cudasim::machine().config.driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

CUDASIM_API cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Of the driver there is one function.
CUDASIM_API cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return ApiCall("cudaGetDriverEntryPointByVersion").without_context().run([&](Machine&) {
    const bool known = std::string_view(symbol) == "cuDevicePrimaryCtxGetState";
    *function = known ? reinterpret_cast<void*>(&context_state) : nullptr;
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

CUDASIM_API cudaDeviceSynchronize() {
  return ApiCall("cudaDeviceSynchronize").synchronizing().run([&](Machine& machine) {
    const int device = cudasim::current_device();
    const bool ended = machine.synchronize_device(device, "cudaDeviceSynchronize");
    machine.give_back_memory(device);
    return ended ? cudaSuccess : cudaErrorLaunchTimeout;
  });
}

CUDASIM_API cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return ApiCall("cudaDeviceCanAccessPeer").without_context().run([&](Machine& machine) {
    if (!exists(machine, device) || !exists(machine, peer)) return cudaErrorInvalidDevice;
    *can = device != peer && machine.config.peer_access ? 1 : 0;
    return cudaSuccess;
  });
}

CUDASIM_API cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return ApiCall("cudaDeviceEnablePeerAccess").run([&](Machine& machine) {
    const int device = cudasim::current_device();
    if (!exists(machine, peer) || peer == device) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!machine.config.peer_access) return cudaErrorPeerAccessUnsupported;
    Device& here = machine.devices[static_cast<std::size_t>(device)];
    char& enabled = here.peers[static_cast<std::size_t>(peer)];
    if (enabled != 0) return cudaErrorPeerAccessAlreadyEnabled;
    enabled = 1;
    return cudaSuccess;
  });
}

// The thread's last error. What has broken the device stays, and so does the lack of a driver.
CUDASIM_API cudaPeekAtLastError() {
  const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
  const Machine& machine = cudasim::machine();
  const cudasim::ThreadState& state = cudasim::thread_state();
  if (!machine.devices.empty()) {
    const cudaError_t broken = machine.devices[static_cast<std::size_t>(state.device)].broken;
    if (broken != cudaSuccess) return broken;
  }
  return machine.config.driver ? state.error : cudaErrorInsufficientDriver;
}

CUDASIM_API cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  cudasim::thread_state().error = cudaSuccess;
  return error;
}
