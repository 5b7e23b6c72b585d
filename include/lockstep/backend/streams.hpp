// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The backend of a device that exists; otherwise the DeviceError that says what there is.
inline Backend& backend_of(Device device) {
  check_device(device);
  if (device.is_cpu()) return HostBackend::instance();
  return *cuda_backend.load(std::memory_order_acquire);
}

// True if a kernel on `reader` can read the memory of `owner` where it is.
inline bool can_access(Device reader, Device owner) {
  return reader == owner || backend_of(reader).can_access(reader, owner);
}

// The streams that this thread's StreamGuards have put in place of the default ones, innermost
// last. None in almost every thread: a look-up then is one comparison, with a number that needs no
// construction as the list does.
class StreamOverrides {
 public:
  static bool empty() { return count_ == 0; }
  static const std::vector<Stream>& list() { return mutable_list(); }

  static void push(Stream stream) {
    mutable_list().push_back(stream);
    ++count_;
  }
  static void pop() {
    mutable_list().pop_back();
    --count_;
  }
  static void swap(std::vector<Stream>& other) noexcept {
    if (empty() && other.empty()) return;
    mutable_list().swap(other);
    count_ = mutable_list().size();
  }

 private:
  static std::vector<Stream>& mutable_list() {
    thread_local std::vector<Stream> overrides;
    return overrides;
  }

  inline static constinit thread_local std::size_t count_ = 0;
};

// The default stream of a device of this machine.
inline StreamState& default_stream_state(Device device) {
  if (!device.is_cpu()) return backend_of(device).default_stream(device);
  check_device(device);
  return HostBackend::instance().default_stream(device);
}

// The stream that this thread's StreamGuards say, or the default one.
[[gnu::noinline]] inline Stream overriding_stream(Device device) {
  const auto& overrides = StreamOverrides::list();
  for (auto it = overrides.rbegin(); it != overrides.rend(); ++it) {
    if (it->device() == device) return *it;
  }
  return Stream(default_stream_state(device));
}

}  // namespace detail

// The stream that this thread's work on `device` goes to.
//
// **Torch counterpart.** torch.cuda.current_stream.
inline Stream current_stream(Device device) {
  if (!detail::StreamOverrides::empty()) [[unlikely]]
    return detail::overriding_stream(device);
  return Stream(detail::default_stream_state(device));
}

// The stream that work on `device` goes to where no StreamGuard says otherwise.
//
// **Torch counterpart.** torch.cuda.default_stream.
inline Stream default_stream(Device device) { return Stream(detail::default_stream_state(device)); }

// The device's background copy stream: Scatter and prefetch copy on it while the compute stream
// works. One for each device, shared by all threads.
inline Stream copy_stream(Device device) {
  return Stream(detail::backend_of(device).copy_stream(device));
}

// A further stream of `device`, from a pool that is handed out in turn.
//
// **Torch counterpart.** torch.cuda.Stream(device).
inline Stream pool_stream(Device device) {
  return Stream(detail::backend_of(device).pool_stream(device));
}

// Makes `stream` this thread's current stream of its device, until the guard is destroyed.
//
// **Torch counterpart.** torch.cuda.StreamContext.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream) { detail::StreamOverrides::push(stream); }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() { detail::StreamOverrides::pop(); }
};

// Blocks until all work issued so far to the device's default and copy streams has ended.
//
// **Torch counterpart.** torch.cuda.synchronize.
inline void synchronize(Device device) {
  default_stream(device).synchronize();
  copy_stream(device).synchronize();
}

// **Torch counterpart.** torch.cuda.get_device_properties.
inline DeviceProperties device_properties(Device device) {
  return detail::backend_of(device).properties(device);
}

inline MemoryStats memory_stats(Device device) {
  return detail::backend_of(device).memory_stats(device);
}

// Returns memory that no tensor uses to the system. A host device keeps, for reuse, what shares a
// segment with memory in use: blocks of 64 KiB to 7 MiB that fill no huge pages are cut from
// segments of 2 and 16 MiB.
//
// **Torch counterpart.** torch.cuda.empty_cache.
inline void empty_cache(Device device) { detail::backend_of(device).empty_cache(device); }

}  // namespace lockstep
