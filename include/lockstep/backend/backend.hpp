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

// One rectangle of bytes: `rows` runs of `width` bytes, their starts `pitch` bytes apart. A chunk
// along a dimension other than the first lies in memory like this.
struct Pitched {
  std::size_t width;
  std::size_t rows = 1;
  std::size_t dst_pitch = 0;  // these have no meaning if there is one row
  std::size_t src_pitch = 0;

  std::size_t bytes() const { return width * rows; }
  // Whether there is nothing between the rows on either side.
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
  bool src_is_lent = false;  // another allocator's memory, which it may open to no other GPU

  std::size_t bytes() const { return shape.bytes(); }
};

// The streams but its owner whose work may use a block. Moved into `deallocate`: whoever cannot
// note there when that work ends can keep this list without new memory.
struct UsedOn {
  StreamState* first = nullptr;     // null where there is none
  std::vector<StreamState*> all{};  // where there are several: these, `first` among them

  std::span<StreamState* const> streams() const {
    if (!all.empty()) return all;
    return {&first, first ? 1U : 0U};
  }
};

// Whom a block of memory is given back to.
//
// Threads: every member may be called from any thread.
class BlockOwner : NonCopyable {
 public:
  virtual ~BlockOwner() = default;

  // The block is used for something else only after all work issued so far to `owner` and to the
  // streams in `used_on`.
  virtual void deallocate(void* data, std::size_t bytes, StreamState& owner,
                          UsedOn&& used_on) noexcept = 0;
};

// Where the memory of tensors comes from. A device's backend is one; page-locked memory on plain
// `cpu` is another. Objects live until the process ends.
class MemoryResource : public BlockOwner {
 public:
  // Memory in stream order: usable by work issued to `owner` from now on.
  virtual void* allocate(std::size_t bytes, StreamState& owner) = 0;
  virtual MemoryStats memory_stats(Device device) = 0;
  virtual void empty_cache(Device device) = 0;
};

// The seam between the library and the hardware: all that a kind of device has to be able to do.
//
// There is one Backend for all devices of a type, chosen at run time by a tensor's device, so that
// one binary serves every machine and devices can be mixed. The CUDA backend makes every copy that
// has a GPU at either end; the stream of a copy belongs to one of its two devices.
//
// Kernels and library calls do not pass through here but through `launch` (backend/launch.hpp),
// which is a template over the functor.
//
// Threads: every member may be called from any thread. Objects live until the process ends.
class Backend : public MemoryResource {
 public:
  virtual DeviceProperties properties(Device device) = 0;

  // The stream that work of a device goes to unless a StreamGuard says otherwise, the one that its
  // background copies go to, and further ones (from a pool, in turn). `device` exists.
  virtual StreamState& default_stream(Device device) = 0;
  virtual StreamState& copy_stream(Device device) = 0;
  virtual StreamState& pool_stream(Device device) = 0;

  // True if a kernel on `reader` can read the memory of `owner` where it is.
  virtual bool can_access(Device reader, Device owner) = 0;

  // Issues a copy between two devices that this backend serves.
  virtual void copy(const CopyOrder& order) = 0;
  // Several copies issued together, none of which writes what another one touches. Each is work of
  // its own stream; a backend may do better than to issue one after the other.
  virtual void copy_all(std::span<const CopyOrder> orders) {
    for (const CopyOrder& each : orders) copy(each);
  }

  // The rest is for memory that is shared with other libraries.

  // What the memory at `data` is, if it is known that work of `device` cannot use it; else empty.
  virtual std::string misplaced(const void* data, Device device) = 0;

  // The number and the handle by which the driver knows a device and a stream; 0 for the host's.
  virtual int native_index(Device device) = 0;
  virtual std::intptr_t native_handle(StreamState& stream) = 0;

  // All that has been issued to `stream` comes before what another library issues to its stream
  // `consumer` from now on. On the host, which has no such streams, the caller waits for it.
  virtual void hand_over(StreamState& stream, std::intptr_t consumer) = 0;
};

// The CUDA side of the library puts its backend here before `main`.
inline constinit std::atomic<Backend*> cuda_backend{nullptr};

// The CUDA side puts the source of page-locked host memory here before `main`. It is of no use
// without a GPU.
inline constinit std::atomic<MemoryResource*> pinned_memory{nullptr};

}  // namespace lockstep::detail
