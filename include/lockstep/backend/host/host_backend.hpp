// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::detail {

// Host devices, and plain host memory as a device without parallelism. Everything is made at the
// backend's first use and never destroyed.
class HostBackend final : public Backend {
 public:
  static HostBackend& instance() {
    HostBackend* const made = instance_.load(std::memory_order_acquire);
    return made ? *made : make();
  }

  DeviceProperties properties(Device device) override {
    const int cores = static_cast<int>(usable_cores());
    const int slices = device.is_host_memory() ? 1 : device_count(DeviceType::cpu);
    const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    return {.name = "host",
            .total_memory = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
            .multi_processor_count = std::max(1, cores / slices)};
  }

  HostStream& default_stream(Device device) override { return *at(device).compute; }
  HostStream& copy_stream(Device device) override { return *at(device).copy; }
  HostStream& pool_stream(Device device) override {
    PerDevice& mine = at(device);
    return *mine.pool[mine.next_pool.fetch_add(1, std::memory_order_relaxed) % kPoolStreams];
  }

  void* allocate(std::size_t bytes, StreamState& owner) override {
    return at(owner.device()).allocator.allocate(bytes, owner);
  }

  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  UsedOn&& used_on) noexcept override {
    at(owner.device()).allocator.deallocate(data, bytes, owner, std::move(used_on));
  }

  MemoryStats memory_stats(Device device) override {
    return at(device).allocator.memory_stats(device);
  }
  // On plain `cpu`, also empties the cache of page-locked memory.
  void empty_cache(Device device) override {
    at(device).allocator.empty_cache(device);
    MemoryResource* const pinned = pinned_memory.load(std::memory_order_acquire);
    if (pinned && device.is_host_memory()) pinned->empty_cache(device);
  }

  bool can_access(Device, Device owner) override { return owner.is_cpu(); }

  void copy(const CopyOrder& order) override {
    const std::size_t bytes = order.bytes();
    if (bytes == 0) return;
    HostStream& stream = stream_of(order);
    const auto run = [order, bytes] {
      const profile::RecordFunction range("copy", row_of(stream_of(order)), {.bytes = bytes});
      copy_in_pieces({&order, 1});
    };
    // On an idle stream the caller may run a small copy at once, which costs less than a hop to
    // another thread.
    if (bytes <= kSmallCopy && stream.mode() == HostStream::Mode::queued && stream.idle()) {
      return run();
    }
    stream.submit(run, /*may_wait=*/false);
  }

  // The caller makes all copies itself, helped by idle threads, if each stream is immediate, or if
  // all are idle and the copies are small. Their bytes are divided as one work, so that each core
  // gets the same part whenever the same copies come again.
  void copy_all(std::span<const CopyOrder> orders) override {
    std::size_t bytes = 0;
    for (const CopyOrder& order : orders) bytes += order.bytes();
    const auto by_caller = [bytes](const CopyOrder& order) {
      const HostStream& stream = stream_of(order);
      return stream.mode() == HostStream::Mode::immediate ||
             (bytes <= kSmallCopies && stream.idle());
    };
    if (!all_of(orders, by_caller)) return Backend::copy_all(orders);
    for (const CopyOrder& order : orders) stream_of(order).prepare_operation();
    if (!profile::enabled()) return copy_in_pieces(orders);
    std::deque<profile::RecordFunction> ranges;
    for (const CopyOrder& order : orders) {
      ranges.emplace_back(profile::Literal("copy"), row_of(stream_of(order)),
                          profile::RangeDetails{.bytes = order.bytes()});
    }
    copy_in_pieces(orders);
  }

  // Only a GPU's driver can tell its memory from the host's.
  std::string misplaced(const void* data, Device device) override {
    Backend* const cuda = cuda_backend.load(std::memory_order_acquire);
    return cuda ? cuda->misplaced(data, device) : std::string();
  }
  int native_index(Device) override { return 0; }
  std::intptr_t native_handle(StreamState&) override { return 0; }
  void hand_over(StreamState& stream, std::intptr_t) override { stream.synchronize(); }

  // Makes the streams if a test has set it before the backend's first use.
  using MakeStream = std::unique_ptr<HostStream>(Device device, HostStream::Mode mode);
  inline static constinit MakeStream* make_stream = nullptr;

  // A copy of up to this size may run in its issuer if the stream is idle.
  static constexpr std::size_t kSmallCopy = std::size_t{64} << 10;
  // So may copies that are issued together, up to this size in all. Two cores need about 100 µs for
  // it; the computation waits for these copies anyway, and the caller's core would otherwise be
  // idle, or its device ahead of the others.
  static constexpr std::size_t kSmallCopies = std::size_t{4} << 20;

 private:
  static constexpr std::size_t kPoolStreams = 8;

  struct PerDevice {
    explicit PerDevice(Device device) : allocator(device) {
      const auto make = [device](HostStream::Mode mode) {
        return make_stream ? make_stream(device, mode) : std::make_unique<HostStream>(device, mode);
      };
      using enum HostStream::Mode;
      compute = make(immediate);
      copy = make(device.is_host_memory() ? immediate : queued);
      for (auto& stream : pool) stream = make(immediate);
    }
    HostAllocator allocator;
    std::unique_ptr<HostStream> compute;
    std::unique_ptr<HostStream> copy;
    std::array<std::unique_ptr<HostStream>, kPoolStreams> pool;
    std::atomic<std::size_t> next_pool{0};
  };

  HostBackend() {
    const int count = device_count(DeviceType::cpu);
    for (int i = -1; i < count; ++i) {
      devices_.push_back(std::make_unique<PerDevice>(Device(DeviceType::cpu, i)));
    }
  }

  // Out of line: `instance` is inlined in many places.
  [[gnu::noinline]] static HostBackend& make() {
    static HostBackend& backend = *new HostBackend;
    instance_.store(&backend, std::memory_order_release);
    return backend;
  }
  inline static constinit std::atomic<HostBackend*> instance_{nullptr};

  PerDevice& at(Device device) { return *devices_[static_cast<std::size_t>(device.index + 1)]; }

  static HostStream& stream_of(const CopyOrder& order) {
    return static_cast<HostStream&>(*order.stream);
  }

  static profile::Row row_of(HostStream& stream) {
    if (!profile::enabled()) return {};
    const bool copies = &stream == &instance().copy_stream(stream.device());
    return {stream.device(), copies ? profile::Row::Kind::copy : profile::Row::Kind::compute};
  }

  std::vector<std::unique_ptr<PerDevice>> devices_;  // plain cpu first
};

}  // namespace lockstep::detail
