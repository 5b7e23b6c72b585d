// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <cstdio>
#include <string>
#include <string_view>

using cudasim::ApiCall;
using cudasim::Machine;

namespace {

bool exists(const Machine& machine, int device) {
  return device >= 0 && device < machine.config.devices;
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
    properties->multiProcessorCount = 4;
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
