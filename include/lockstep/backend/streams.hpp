// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

namespace detail {

// The backend of an existing device; otherwise a DeviceError that says what there is.
Backend& backend_of(Device device);

// True if a kernel on `reader` can read memory of `owner` in place.
inline bool can_access(Device reader, Device owner) {
  return reader == owner || backend_of(reader).can_access(reader, owner);
}

// The streams that this thread's StreamGuards have set, innermost last. Almost every thread has
// none, and then a look-up is one comparison with a number, which, unlike the list, needs no
// construction.
class StreamOverrides {
 public:
  static bool empty() { return count_ == 0; }
  static const std::vector<Stream>& list() { return mutable_list(); }

  static void push(Stream stream);
  static void pop();
  static void swap(std::vector<Stream>& other) noexcept;

 private:
  static std::vector<Stream>& mutable_list();

  inline static constinit thread_local std::size_t count_ = 0;
};

StreamState& default_stream_state(Device device);

}  // namespace detail

// The stream for this thread's work on `device`.
//
// **Torch counterpart.** torch.cuda.current_stream.
Stream current_stream(Device device);

// The stream for work on `device` if no StreamGuard has set another.
//
// **Torch counterpart.** torch.cuda.default_stream.
inline Stream default_stream(Device device) { return Stream(detail::default_stream_state(device)); }

// The device's background copy stream, on which Scatter and prefetch copy while the compute stream
// works. One per device, shared by all threads.
inline Stream copy_stream(Device device) {
  return Stream(detail::backend_of(device).copy_stream(device));
}

// Another stream of `device`, from a pool in turn.
//
// **Torch counterpart.** torch.cuda.Stream(device).
inline Stream pool_stream(Device device) {
  return Stream(detail::backend_of(device).pool_stream(device));
}

// Makes `stream` this thread's current stream on its device until the guard is destroyed.
//
// **Torch counterpart.** torch.cuda.StreamContext.
class StreamGuard : detail::NonCopyable {
 public:
  [[nodiscard]] explicit StreamGuard(Stream stream) { detail::StreamOverrides::push(stream); }
  ~StreamGuard() { detail::StreamOverrides::pop(); }
};

// Blocks until all work issued so far to the device's default and copy streams has ended. Does not
// wait for the pool's streams.
//
// **Torch counterpart.** torch.cuda.synchronize.
void synchronize(Device device);

// The device's name, memory and processors.
//
// **Torch counterpart.** torch.cuda.get_device_properties.
inline DeviceProperties device_properties(Device device) {
  return detail::backend_of(device).properties(device);
}

// What the device's allocator has done so far.
//
// **Torch counterpart.** torch.cuda.memory_stats.
inline MemoryStats memory_stats(Device device) {
  return detail::backend_of(device).memory_stats(device);
}

// Returns memory that no tensor uses to the system. A host device keeps blocks that share a segment
// with memory in use.
//
// **Torch counterpart.** torch.cuda.empty_cache.
inline void empty_cache(Device device) { detail::backend_of(device).empty_cache(device); }

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/streams.ipp>
#endif
