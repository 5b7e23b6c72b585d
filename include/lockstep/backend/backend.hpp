// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::detail {

// A rectangle of bytes: `rows` runs of `width` bytes, their starts `pitch` bytes apart, as a chunk
// along any dimension but the first lies in memory.
struct Pitched {
  std::size_t width;
  std::size_t rows = 1;
  std::size_t dst_pitch = 0;  // the pitches have no meaning if there is one row
  std::size_t src_pitch = 0;

  std::size_t bytes() const { return width * rows; }
  // Whether there is no gap between the rows on either side.
  bool is_one_run() const { return rows == 1 || (width == dst_pitch && width == src_pitch); }
};

// One copy on a stream, between any two devices.
struct CopyOrder {
  void* dst;
  Device dst_device;
  const void* src;
  Device src_device;
  Pitched shape;
  StreamState* stream;
  bool src_is_lent = false;  // another allocator's memory, to which other GPUs may have no access

  std::size_t bytes() const { return shape.bytes(); }
};

// The streams, other than its owner, that may still use a block. Passed by move to `deallocate`, so
// that an owner that runs out of memory can keep this list.
struct UsedOn {
  StreamState* first = nullptr;     // null if there is none
  std::vector<StreamState*> all{};  // if there are several: all of them, including `first`

  std::span<StreamState* const> streams() const {
    if (!all.empty()) return all;
    return {&first, first ? 1U : 0U};
  }
};

// The owner that a block of memory is returned to.
//
// Threads: any thread may call any member.
class BlockOwner : NonCopyable {
 public:
  virtual ~BlockOwner() = default;

  // Takes the block back. It is reused only after all work issued so far to `owner` and the streams
  // in `used_on`.
  virtual void deallocate(void* data, std::size_t bytes, StreamState& owner,
                          UsedOn&& used_on) noexcept = 0;
};

// Where tensors' memory comes from: a device's backend, or the source of page-locked memory on
// plain `cpu`. Objects live until the process ends.
class MemoryResource : public BlockOwner {
 public:
  // Memory that work issued to `owner` from now on may use.
  virtual void* allocate(std::size_t bytes, StreamState& owner) = 0;
  virtual MemoryStats memory_stats(Device device) = 0;
  virtual void empty_cache(Device device) = 0;
};

// The seam between the library and the hardware: everything that a kind of device must be able to
// do.
//
// There is one Backend for all devices of a type. The tensor's device chooses it at run time, so
// one binary serves every machine, and devices can be mixed. The CUDA backend makes every copy to
// or from a GPU; a copy's stream belongs to one of its two devices.
//
// Kernels and library calls go through `launch` (backend/launch.hpp) instead, a template over the
// functor.
//
// Threads: any thread may call any member. Objects live until the process ends.
class Backend : public MemoryResource {
 public:
  virtual DeviceProperties properties(Device device) = 0;

  // The stream for a device's work unless a StreamGuard sets another, the one for its background
  // copies, and further ones, from a pool in turn. `device` exists.
  virtual StreamState& default_stream(Device device) = 0;
  virtual StreamState& copy_stream(Device device) = 0;
  virtual StreamState& pool_stream(Device device) = 0;

  // True if a kernel on `reader` can read memory of `owner` in place.
  virtual bool can_access(Device reader, Device owner) = 0;

  // Issues a copy between two devices that this backend serves.
  virtual void copy(const CopyOrder& order) = 0;
  // Issues several copies together, none of which writes what another one touches. Each is work of
  // its own stream; a backend may do better than one after the other.
  virtual void copy_all(std::span<const CopyOrder> orders) {
    for (const CopyOrder& each : orders) copy(each);
  }

  // The rest is for memory shared with other libraries.

  // What the memory at `data` is, if work of `device` is known to be unable to use it; else empty.
  virtual std::string misplaced(const void* data, Device device) = 0;

  // The driver's number of a device and handle of a stream; 0 on the host.
  virtual int native_index(Device device) = 0;
  virtual std::intptr_t native_handle(StreamState& stream) = 0;

  // Orders everything issued to `stream` before what another library issues to its stream
  // `consumer` from now on. On the host, which has no such streams, the caller waits.
  virtual void hand_over(StreamState& stream, std::intptr_t consumer) = 0;
};

// The CUDA side of the library sets its backend here before `main`.
inline constinit std::atomic<Backend*> cuda_backend{nullptr};

// The CUDA side sets the source of page-locked host memory here before `main`. It is of no use
// without a GPU.
inline constinit std::atomic<MemoryResource*> pinned_memory{nullptr};

}  // namespace lockstep::detail
