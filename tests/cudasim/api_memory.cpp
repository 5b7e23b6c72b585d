// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

using cudasim::ApiCall;
using cudasim::Block;
using cudasim::kHost;
using cudasim::Machine;
using cudasim::Memory;
using cudasim::OperationPtr;

namespace {

// Allocates in stream order: the address is there at once, the memory when the stream comes to it.
cudaError_t allocate(Machine& machine, void** data, std::size_t bytes, CUmemPoolHandle_st& pool,
                     CUstream_st& stream) {
  if (bytes == 0) return cudaErrorInvalidValue;
  const std::size_t wanted = std::max<std::size_t>(pool.reserved, pool.used + bytes);
  const std::size_t others = machine.reserved_bytes(pool.device) - pool.reserved;
  if (others + wanted > machine.config.memory_bytes) {
    return cudaErrorMemoryAllocation;
  }
  Block* block = machine.memory.allocate(pool.device, bytes);
  if (block == nullptr) return cudaErrorMemoryAllocation;
  pool.reserved = wanted;
  pool.used += bytes;
  block->pool = &pool;
  block->allocated_by = machine.issue(&stream, "cudaMallocAsync", {{block->data(), bytes, true}},
                                      [block] { Memory::poison(*block); });
  block->allocated_by->any_device = true;
  *data = block->data();
  return cudaSuccess;
}

// The block that a program may free at this address, or null and a report.
Block* find_freeable(Machine& machine, const void* data, const char* function) {
  Block* block = machine.memory.find(data);
  if (block != nullptr && block->data() == data && block->live && !block->freed_by) return block;
  std::string text = std::string(function) + cudasim::in_scope();
  if (block != nullptr && block->data() == data && block->freed_by) {
    text = "DOUBLE FREE: " + text + " of " + std::to_string(block->bytes) + " bytes, freed by " +
           cudasim::describe(*block->freed_by);
  } else {
    text = "BAD FREE: " + text + " of what is no allocation";
  }
  cudasim::report(text);
  return nullptr;
}

// Frees at once, on behalf of the host.
void free_now(Machine& machine, Block& block, const char* function) {
  block.freed_by = machine.host_access({block.data(), block.bytes, true}, function);
  machine.memory.protect(block, Memory::Rights::read);
  machine.check_mark(block);
  cudasim::write_whole(block.data(), block.bytes);
  if (block.pool != nullptr) {
    block.pool->used -= block.bytes;
  } else if (block.device != kHost) {
    machine.devices[static_cast<std::size_t>(block.device)].plain_bytes -= block.bytes;
  }
  machine.release(block);
}

}  // namespace

CUDASIM_API cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  ApiCall call("cudaMallocAsync");
  return call.on(stream).touching(nullptr, nullptr, bytes).run([&](Machine& machine) {
    auto& device = machine.devices[static_cast<std::size_t>(stream->device)];
    return allocate(machine, data, bytes, device.default_pool, *stream);
  });
}

CUDASIM_API cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  ApiCall call("cudaMallocFromPoolAsync");
  return call.on(stream).touching(nullptr, nullptr, bytes).run([&](Machine& machine) {
    if (!machine.usable(pool, "cudaMallocFromPoolAsync")) return cudaErrorInvalidValue;
    return allocate(machine, data, bytes, *pool, *stream);
  });
}

CUDASIM_API cudaFreeAsync(void* data, cudaStream_t stream) {
  ApiCall call("cudaFreeAsync");
  return call.on(stream).touching(data, nullptr, 0).releasing().run([&](Machine& machine) {
    if (data == nullptr) return cudaErrorInvalidValue;
    Block* block = find_freeable(machine, data, "cudaFreeAsync");
    if (block == nullptr) return cudaErrorInvalidValue;
    if (block->pool == nullptr) {
      cudasim::report("BAD FREE: cudaFreeAsync of " + cudasim::describe(*block) +
                      ", which is of no pool");
      return cudaErrorInvalidValue;
    }
    const OperationPtr free =
        machine.issue(stream, "cudaFreeAsync", {{data, block->bytes, true}}, [&machine, block] {
          cudasim::write_whole(block->data(), block->bytes);
          machine.check_mark(*block);
        });
    free->completed = [&machine, block] {
      block->pool->used -= block->bytes;
      machine.release(*block);
    };
    block->freed_by = free;
    return cudaSuccess;
  });
}

CUDASIM_API cudaMalloc(void** data, size_t bytes) {
  return ApiCall("cudaMalloc").touching(nullptr, nullptr, bytes).run([&](Machine& machine) {
    *data = nullptr;
    if (bytes == 0) return cudaSuccess;
    const int device = cudasim::current_device();
    if (machine.reserved_bytes(device) + bytes > machine.config.memory_bytes) {
      return cudaErrorMemoryAllocation;
    }
    Block* block = machine.memory.allocate(device, bytes);
    if (block == nullptr) return cudaErrorMemoryAllocation;
    machine.devices[static_cast<std::size_t>(device)].plain_bytes += bytes;
    machine.memory.protect(*block, Memory::Rights::write);
    Memory::poison(*block);
    machine.memory.rest(*block);
    block->rested = true;
    *data = block->data();
    return cudaSuccess;
  });
}

// Waits for the device of the memory, unless a pool's: then the host has to have waited.
CUDASIM_API cudaFree(void* data) {
  return ApiCall("cudaFree").touching(data, nullptr, 0).releasing().run([&](Machine& machine) {
    if (data == nullptr) return cudaSuccess;
    Block* block = find_freeable(machine, data, "cudaFree");
    if (block == nullptr || block->device == kHost) return cudaErrorInvalidValue;
    if (block->pool == nullptr) machine.synchronize_device(block->device, "cudaFree");
    free_now(machine, *block, "cudaFree");
    return cudaSuccess;
  });
}

CUDASIM_API cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return ApiCall("cudaHostAlloc").touching(nullptr, nullptr, bytes).run([&](Machine& machine) {
    *data = nullptr;
    if (bytes == 0) return cudaSuccess;
    Block* block = machine.memory.allocate(kHost, bytes);
    if (block == nullptr) return cudaErrorMemoryAllocation;
    machine.memory.protect(*block, Memory::Rights::write);
    Memory::poison(*block);
    *data = block->data();
    return cudaSuccess;
  });
}

CUDASIM_API cudaMallocHost(void** data, size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}

CUDASIM_API cudaFreeHost(void* data) {
  return ApiCall("cudaFreeHost").touching(data, nullptr, 0).releasing().run([&](Machine& machine) {
    if (data == nullptr) return cudaSuccess;
    Block* block = find_freeable(machine, data, "cudaFreeHost");
    if (block == nullptr || block->device != kHost) return cudaErrorInvalidValue;
    free_now(machine, *block, "cudaFreeHost");
    return cudaSuccess;
  });
}

CUDASIM_API cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return ApiCall("cudaPointerGetAttributes").run([&](Machine& machine) {
    const Block* block = machine.memory.find(data);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    auto* const address = const_cast<void*>(data);
    if (block == nullptr || !block->live) {
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    const bool host = block->device == kHost;
    attributes->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = host ? 0 : block->device;
    attributes->devicePointer = address;
    if (host) attributes->hostPointer = address;
    return cudaSuccess;
  });
}
