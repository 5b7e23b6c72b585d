// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

// Kernels, and the twins that run in their place. Registered by static initialisers, so nothing
// here depends on their order.
namespace cudasim {
namespace {

struct Twin {
  std::string name;
  TwinFunction function;
};

std::map<const void*, Twin>& twins() {
  static auto* const all = new std::map<const void*, Twin>;
  return *all;
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
  twins()[kernel] = {name, twin};
}

}  // namespace cudasim

using cudasim::ApiCall;
using cudasim::Machine;

CUDASIM_API cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t stream) {
  cudasim::Twin twin{};
  {
    const cudasim::SimulatorLock lock(cudasim::simulator_mutex);
    const auto found = cudasim::twins().find(kernel);
    if (found != cudasim::twins().end()) twin = found->second;
  }
  std::vector<cudasim::MemoryUse> uses;
  std::function<void()> body;
  if (twin.function != nullptr) body = twin.function(arguments, uses);
  ApiCall call("cudaLaunchKernel");
  return call.on(stream).launching(twin.name).run([&](Machine& machine) {
    if (twin.function == nullptr) {
      cudasim::report("NO TWIN: an unknown kernel" + cudasim::in_scope());
      return cudaErrorInvalidDeviceFunction;
    }
    if (!cudasim::possible(grid, block)) return cudaErrorInvalidConfiguration;
    return cudasim::launch(machine, stream, twin.name, std::move(uses), std::move(body));
  });
}
