// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::detail {

// Host devices, and plain host memory as a device without parallelism of its own.
//
// Everything is made when the backend is first used and never destroyed.
class HostBackend final : public Backend {
 public:
  static HostBackend& instance() {
    HostBackend* const made = instance_.load(std::memory_order_acquire);
    return made ? *made : make();
  }

  LOCKSTEP_INLINE DeviceProperties properties(Device device) override;

  HostStream& default_stream(Device device) override { return *at(device).compute; }
  HostStream& copy_stream(Device device) override { return *at(device).copy; }
  LOCKSTEP_INLINE HostStream& pool_stream(Device device) override;

  LOCKSTEP_INLINE void* allocate(std::size_t bytes, StreamState& owner) override;

  LOCKSTEP_INLINE void deallocate(void* data, std::size_t bytes, StreamState& owner,
                                  UsedOn&& used_on) noexcept override;

  MemoryStats memory_stats(Device device) override { return at(device).allocator.stats(); }
  // On plain `cpu` this gives back page-locked memory, too.
  LOCKSTEP_INLINE void empty_cache(Device device) override;

  bool can_access(Device, Device owner) override { return owner.is_cpu(); }

  LOCKSTEP_INLINE void copy(void* dst, Device, const void* src, Device, std::size_t bytes,
                            StreamState& stream) override;

  LOCKSTEP_INLINE void copy_pitched(void* dst, Device, const void* src, Device,
                                    const Pitched& shape, StreamState& stream) override;

  // The caller does all copies itself, helped by threads that have time, if each stream is
  // immediate, or idle and the copies are small. The bytes are divided as one work, so that each
  // core has the same part of the copies whenever they come again.
  LOCKSTEP_INLINE void copy_all(std::span<const CopyOrder> orders) override;

  // Only a GPU's driver tells its memory from the host's.
  LOCKSTEP_INLINE std::string misplaced(const void* data, Device device) override;
  int native_index(Device) override { return 0; }
  std::intptr_t native_handle(StreamState&) override { return 0; }
  void hand_over(StreamState& stream, std::intptr_t) override { stream.synchronize(); }

  // What makes the streams, where a test has put it here before the backend is first used.
  using MakeStream = std::unique_ptr<HostStream>(Device device, HostStream::Mode mode);
  inline static constinit MakeStream* make_stream = nullptr;

  // A copy of up to this size may run in its issuer when the stream is idle.
  static constexpr std::size_t kSmallCopy = std::size_t{64} << 10;
  // Copies that are issued together may, too, up to this size in all, for which two cores need
  // about 100 µs: the computation that needs them waits for them anyway, and meanwhile the caller's
  // core would be idle, or the caller's device ahead of the others.
  static constexpr std::size_t kSmallCopies = std::size_t{4} << 20;

 private:
  static constexpr std::size_t kPoolStreams = 8;

  struct PerDevice {
    explicit PerDevice(Device device);
    HostAllocator allocator;
    std::unique_ptr<HostStream> compute;
    std::unique_ptr<HostStream> copy;
    std::array<std::unique_ptr<HostStream>, kPoolStreams> pool;
    std::atomic<std::size_t> next_pool{0};
  };

  HostBackend();

  static HostBackend& make();
  inline static constinit std::atomic<HostBackend*> instance_{nullptr};

  PerDevice& at(Device device) { return *devices_[static_cast<std::size_t>(device.index + 1)]; }

  static HostStream& stream_of(const CopyOrder& order) {
    return static_cast<HostStream&>(*order.stream);
  }

  // The row of the timeline for the copies of a stream.
  static profile::Row row_of(HostStream& stream);

  template <class F>
  static void submit(HostStream& stream, std::size_t bytes, const F& copy) {
    const auto run = [copy, bytes, &stream] {
      const profile::RecordFunction range("copy", row_of(stream), {.bytes = bytes});
      copy();
    };
    if (bytes <= kSmallCopy) {
      stream.submit_small(run);
    } else {
      stream.submit_copy(run);
    }
  }

  std::vector<std::unique_ptr<PerDevice>> devices_;  // plain cpu first
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/host_backend.ipp>
#endif
