// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

using cudasim::ApiCall;
using cudasim::Block;
using cudasim::kHost;
using cudasim::Machine;
using cudasim::MemoryUse;
using cudasim::OperationPtr;

namespace {

struct Copy {
  const char* function;
  MemoryUse target;
  MemoryUse source;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  bool peer = false;  // between the devices below, whether or not they can map each other's memory
  int target_device = 0;
  int source_device = 0;
};

MemoryUse piece(const void* data, std::size_t bytes, bool write, std::size_t rows = 1,
                std::size_t pitch = 0) {
  if (rows > 1 && pitch == bytes) return {data, bytes * rows, write, 1, 0};
  return {data, bytes, write, rows, rows > 1 ? pitch : 0};
}

// Row by row, where the two sides need not have their rows alike: one of them may be contiguous.
void copy_bytes(const MemoryUse& target, const MemoryUse& source) {
  const bool target_decides = target.rows >= source.rows;
  const std::size_t rows = target_decides ? target.rows : source.rows;
  const std::size_t width = target_decides ? target.bytes : source.bytes;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t to = row * (target.rows == rows && rows > 1 ? target.pitch : width);
    const std::size_t from = row * (source.rows == rows && rows > 1 ? source.pitch : width);
    std::memmove(static_cast<char*>(const_cast<void*>(target.data)) + to,
                 static_cast<const char*>(source.data) + from, width);
  }
}

void write_garbage(const MemoryUse& target) {
  for (std::size_t row = 0; row < target.rows; ++row) {
    std::memset(static_cast<char*>(const_cast<void*>(target.data)) + row * target.pitch, 0x5a,
                target.bytes);
  }
}

// Where memory is: a device, kHost, or kPageable.
constexpr int kPageable = -2;

int place(Machine& machine, const MemoryUse& use) {
  const Block* block = machine.memory.find(use.data);
  if (block != nullptr) return block->device;
  return machine.memory.reserved(use.data) ? kHost : kPageable;
}

// The kind says on which sides devices are, which must be so.
bool plausible(const Copy& copy, int target, int source) {
  if (copy.kind == cudaMemcpyDefault) return true;
  const bool to_device =
      copy.kind == cudaMemcpyHostToDevice || copy.kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyDeviceToDevice;
  return to_device == (target >= 0) && from_device == (source >= 0);
}

cudaError_t check_places(const Copy& copy, int target, int source) {
  const std::string function = copy.function + cudasim::in_scope();
  if (!plausible(copy, target, source)) {
    cudasim::report("WRONG KIND: " + function + " of kind " + std::to_string(copy.kind) +
                    " does not fit where its memory is");
    return cudaErrorInvalidValue;
  }
  if (copy.peer && (target != copy.target_device || source != copy.source_device)) {
    cudasim::report("WRONG DEVICE: " + function + " to device " +
                    std::to_string(copy.target_device) + " and from device " +
                    std::to_string(copy.source_device) + ", but the memory is elsewhere");
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

// Issues a copy. Memory that is not page-locked would make it wait for the device (a target) or
// pass through memory of the driver's (a source): it works, and is an error, since it is not
// asynchronous.
cudaError_t copy_async(Machine& machine, Copy copy, CUstream_st& stream) {
  if (copy.target.bytes == 0 || copy.target.rows == 0) return cudaSuccess;
  const int target = place(machine, copy.target);
  const int source = place(machine, copy.source);
  if (const cudaError_t error = check_places(copy, target, source)) return error;
  if (target == kPageable || source == kPageable) {
    cudasim::report(std::string("PAGEABLE MEMORY: ") + copy.function + " on " +
                    cudasim::describe(stream) + cudasim::in_scope() + " of memory that is " +
                    "not page-locked");
  }
  // "cudaMemcpyAsync Current Context/Device Sensitivity", CUDA Programming Guide.
  for (const MemoryUse& use : {copy.target, copy.source}) {
    const Block* const block = machine.memory.find(use.data);
    if (copy.peer || block == nullptr || block->pool == nullptr) continue;
    if (stream.device == cudasim::current_device()) continue;
    cudasim::report(std::string("WRONG DEVICE: ") + copy.function + " of memory from a pool on " +
                    cudasim::describe(stream) + " while device " +
                    std::to_string(cudasim::current_device()) + " is current" +
                    cudasim::in_scope());
  }
  std::vector<MemoryUse> uses;
  if (target != kPageable) uses.push_back(copy.target);
  if (source != kPageable) uses.push_back(copy.source);
  std::shared_ptr<char[]> staged;
  if (source == kPageable) {
    const MemoryUse from = copy.source;
    const MemoryUse whole = piece(nullptr, from.bytes * from.rows, false);
    staged.reset(new char[whole.bytes]);
    copy.source = piece(staged.get(), whole.bytes, false);
    const cudasim::Seen seen;
    copy_bytes(copy.source, from);
  }
  const bool garbage = target >= 0 && source >= 0 && target != source && !machine.config.peer_data;
  const OperationPtr operation =
      machine.issue(&stream, copy.function, std::move(uses), [copy, staged, garbage] {
        if (garbage) return write_garbage(copy.target);
        copy_bytes(copy.target, copy.source);
      });
  operation->any_device = copy.peer;
  if (target == kPageable) machine.host_wait(operation, copy.function);
  return cudaSuccess;
}

}  // namespace

CUDASIM_API cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ApiCall call("cudaMemcpyAsync");
  return call.on(stream).touching(target, source, bytes).run([&](Machine& machine) {
    const Copy copy{"cudaMemcpyAsync", piece(target, bytes, true), piece(source, bytes, false),
                    kind};
    return copy_async(machine, copy, *stream);
  });
}

CUDASIM_API cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  ApiCall call("cudaMemcpy2DAsync");
  return call.on(stream).touching(target, source, width * height).run([&](Machine& machine) {
    if (width > target_pitch || width > source_pitch) return cudaErrorInvalidPitchValue;
    const Copy copy{"cudaMemcpy2DAsync", piece(target, width, true, height, target_pitch),
                    piece(source, width, false, height, source_pitch), kind};
    return copy_async(machine, copy, *stream);
  });
}

CUDASIM_API cudaMemcpyPeerAsync(void* target, int target_device, const void* source,
                                int source_device, size_t bytes, cudaStream_t stream) {
  ApiCall call("cudaMemcpyPeerAsync");
  return call.on(stream).touching(target, source, bytes).run([&](Machine& machine) {
    const Copy copy{"cudaMemcpyPeerAsync",
                    piece(target, bytes, true),
                    piece(source, bytes, false),
                    cudaMemcpyDefault,
                    true,
                    target_device,
                    source_device};
    return copy_async(machine, copy, *stream);
  });
}

// Of pitched memory, a slice at a time; arrays are not simulated.
CUDASIM_API cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* what, cudaStream_t stream) {
  const cudaExtent& extent = what->extent;
  ApiCall call("cudaMemcpy3DPeerAsync");
  call.on(stream).touching(what->dstPtr.ptr, what->srcPtr.ptr,
                           extent.width * extent.height * extent.depth);
  return call.run([&](Machine& machine) {
    if (what->srcArray != nullptr || what->dstArray != nullptr) {
      cudasim::report("NOT SIMULATED: cudaMemcpy3DPeerAsync of an array");
      return cudaErrorInvalidValue;
    }
    if (extent.width > what->dstPtr.pitch || extent.width > what->srcPtr.pitch) {
      return cudaErrorInvalidPitchValue;
    }
    const auto slice = [&](const cudaPitchedPtr& memory, const cudaPos& at, std::size_t z,
                           bool write) {
      const char* data = static_cast<const char*>(memory.ptr) + at.x +
                         memory.pitch * (at.y + memory.ysize * (at.z + z));
      return piece(data, extent.width, write, extent.height, memory.pitch);
    };
    for (std::size_t z = 0; z < extent.depth; ++z) {
      const Copy copy{"cudaMemcpy3DPeerAsync",
                      slice(what->dstPtr, what->dstPos, z, true),
                      slice(what->srcPtr, what->srcPos, z, false),
                      cudaMemcpyDefault,
                      true,
                      what->dstDevice,
                      what->srcDevice};
      if (const cudaError_t error = copy_async(machine, copy, *stream)) return error;
    }
    return cudaSuccess;
  });
}

// Of any memory, in order with nothing but the host: streams made as non-blocking do not wait.
CUDASIM_API cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  ApiCall call("cudaMemcpy");
  call.touching(target, source, bytes).synchronizing();
  return call.run([&](Machine& machine) {
    if (bytes == 0) return cudaSuccess;
    const Copy copy{"cudaMemcpy", piece(target, bytes, true), piece(source, bytes, false), kind};
    const int to = place(machine, copy.target);
    const int from = place(machine, copy.source);
    if (const cudaError_t error = check_places(copy, to, from)) return error;
    std::vector<MemoryUse> uses;
    if (to != kPageable) uses.push_back(copy.target);
    if (from != kPageable) uses.push_back(copy.source);
    auto& device = machine.devices[static_cast<std::size_t>(cudasim::current_device())];
    const OperationPtr operation = machine.issue(&device.synchronous, "cudaMemcpy", std::move(uses),
                                                 [copy] { copy_bytes(copy.target, copy.source); });
    operation->any_device = true;
    return machine.host_wait(operation, "cudaMemcpy") ? cudaSuccess : cudaErrorLaunchTimeout;
  });
}

CUDASIM_API cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  ApiCall call("cudaMemsetAsync");
  return call.on(stream).touching(target, nullptr, bytes).run([&](Machine& machine) {
    machine.issue(stream, "cudaMemsetAsync", {{target, bytes, true}},
                  [target, value, bytes] { std::memset(target, value, bytes); });
    return cudaSuccess;
  });
}
