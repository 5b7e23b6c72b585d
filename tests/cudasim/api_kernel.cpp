// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

// Kernels: what nvcc's objects call (the interface of CUDA 13), and the twins that run in their
// place. Registered by static initialisers, so nothing here depends on their order.
namespace cudasim {
namespace {

struct Twin {
  std::string name;
  TwinFunction function;
};

struct Kernels {
  std::map<const void*, std::string> names;  // as nvcc mangled them
  std::map<const void*, Twin> twins;
};

Kernels& kernels() {
  static auto* const all = new Kernels;
  return *all;
}

struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  cudaStream_t stream;
};

std::vector<Launch>& launches() {
  static thread_local std::vector<Launch> configured;
  return configured;
}

std::string name_of(const void* kernel) {
  const auto found = kernels().names.find(kernel);
  return found == kernels().names.end() ? "an unknown kernel" : found->second;
}

bool possible(dim3 grid, dim3 block) {
  constexpr unsigned kMostThreads = 1024;
  constexpr unsigned kMostBlocks = 65535;  // of the second and third dimension
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  return threads >= 1 && threads <= kMostThreads && block.z <= 64 && grid.x >= 1 && grid.y >= 1 &&
         grid.z >= 1 && grid.x <= 2147483647U && grid.y <= kMostBlocks && grid.z <= kMostBlocks;
}

}  // namespace

void register_twin(const void* kernel, const char* name, TwinFunction twin) {
  const SimulatorLock lock(simulator_mutex);
  kernels().twins[kernel] = {name, twin};
}

}  // namespace cudasim

using cudasim::ApiCall;
using cudasim::Machine;

CUDASIM_API cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t stream) {
  cudasim::Twin twin{};
  {
    const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
    const auto& twins = cudasim::kernels().twins;
    const auto found = twins.find(kernel);
    if (found != twins.end()) twin = found->second;
  }
  std::vector<cudasim::MemoryUse> uses;
  std::function<void()> body;
  if (twin.function != nullptr) body = twin.function(arguments, uses);
  ApiCall call("cudaLaunchKernel");
  return call.on(stream).launching(twin.name).run([&](Machine& machine) {
    if (twin.function == nullptr) {
      cudasim::report("NO TWIN: " + cudasim::name_of(kernel) + cudasim::in_scope());
      return cudaErrorInvalidDeviceFunction;
    }
    if (!cudasim::possible(grid, block)) return cudaErrorInvalidConfiguration;
    return cudasim::launch(machine, stream, twin.name, std::move(uses), std::move(body));
  });
}

CUDASIM_API cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return ApiCall("cudaFuncGetAttributes").run([&](Machine&) {
    const auto& all = cudasim::kernels();
    if (all.names.count(kernel) == 0 && all.twins.count(kernel) == 0) {
      return cudaErrorInvalidDeviceFunction;
    }
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->ptxVersion = 90;
    attributes->binaryVersion = 90;
    return cudaSuccess;
  });
}

extern "C" {

void** CUDARTAPI __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}

void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}

void CUDARTAPI __cudaUnregisterFatBinary(void**) {}

char CUDARTAPI __cudaInitModule(void**) { return 1; }

void CUDARTAPI __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int,
                                      uint3*, uint3*, dim3*, dim3*, int*) {
  const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
  cudasim::kernels().names[kernel] = name;
}

void CUDARTAPI __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                               CUstream_st* stream) {
  cudasim::launches().push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                 void* stream) {
  const cudasim::Launch launch = cudasim::launches().back();
  cudasim::launches().pop_back();
  *grid = launch.grid;
  *block = launch.block;
  *shared = launch.shared;
  *static_cast<cudaStream_t*>(stream) = launch.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its host function.
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* handle, const void* kernel) {
  *handle = static_cast<cudaKernel_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                         void** arguments, size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

}  // extern "C"
