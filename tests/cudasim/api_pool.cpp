// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

using cudasim::ApiCall;
using cudasim::Machine;

CUDASIM_API cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return ApiCall("cudaDeviceGetDefaultMemPool").without_context().run([&](Machine& machine) {
    if (device < 0 || device >= machine.config.devices) return cudaErrorInvalidDevice;
    *pool = &machine.devices[static_cast<std::size_t>(device)].default_pool;
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return ApiCall("cudaMemPoolCreate").without_context().run([&](Machine& machine) {
    const int device = properties->location.id;
    if (properties->allocType != cudaMemAllocationTypePinned || properties->maxSize != 0 ||
        properties->location.type != cudaMemLocationTypeDevice || device < 0 ||
        device >= machine.config.devices) {
      return cudaErrorInvalidValue;
    }
    *pool = machine.create_pool(device);
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolDestroy(cudaMemPool_t pool) {
  return ApiCall("cudaMemPoolDestroy").without_context().releasing().run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMemPoolDestroy")) return cudaErrorInvalidValue;
    pool->destroyed = true;
    pool->reserved = pool->used;
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return ApiCall("cudaMemPoolSetAttribute").without_context().run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMemPoolSetAttribute")) return cudaErrorInvalidValue;
    if (attribute != cudaMemPoolAttrReleaseThreshold) {
      cudasim::report("NOT SIMULATED: setting pool attribute " + std::to_string(attribute));
      return cudaErrorInvalidValue;
    }
    pool->threshold = *static_cast<const std::uint64_t*>(value);
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return ApiCall("cudaMemPoolGetAttribute").without_context().run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMemPoolGetAttribute")) return cudaErrorInvalidValue;
    if (attribute != cudaMemPoolAttrReservedMemCurrent) {
      cudasim::report("NOT SIMULATED: reading pool attribute " + std::to_string(attribute));
      return cudaErrorInvalidValue;
    }
    *static_cast<std::uint64_t*>(value) = pool->reserved;
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  return ApiCall("cudaMemPoolTrimTo").without_context().run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMemPoolTrimTo")) return cudaErrorInvalidValue;
    pool->reserved = std::max(pool->used, std::min<std::uint64_t>(pool->reserved, bytes));
    return cudaSuccess;
  });
}

CUDASIM_API cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return ApiCall("cudaMemPoolSetAccess").without_context().run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMemPoolSetAccess")) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      const int device = list[i].location.id;
      if (list[i].location.type != cudaMemLocationTypeDevice || device < 0 ||
          device >= machine.config.devices) {
        return cudaErrorInvalidValue;
      }
      // Its own device cannot be shut out, and one without a way there not be let in.
      if (device == pool->device) {
        if (list[i].flags != cudaMemAccessFlagsProtReadWrite) return cudaErrorInvalidValue;
      } else if (!machine.config.peer_access) {
        return cudaErrorInvalidDevice;
      }
      pool->access[static_cast<std::size_t>(device)] = list[i].flags;
    }
    return cudaSuccess;
  });
}
