// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/profile/record_function.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::detail {

// Host devices, and plain host memory as a device without parallelism of its own.
//
// Everything is made when the backend is first used and never destroyed.
class HostBackend final : public Backend {
 public:
  static HostBackend& instance() {
    static HostBackend& backend = *new HostBackend;
    return backend;
  }

  DeviceProperties properties(Device device) override {
    const int cores = static_cast<int>(usable_cores());
    const int slices = device.is_host_memory() ? 1 : device_count(DeviceType::cpu);
    const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    return {.name = "host",
            .total_memory = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
            .multi_processor_count = std::max(1, cores / slices)};
  }

  HostStream& default_stream(Device device) override { return at(device).compute; }
  HostStream& copy_stream(Device device) override { return at(device).copy; }
  HostStream& pool_stream(Device device) override {
    PerDevice& mine = at(device);
    return *mine.pool[mine.next_pool.fetch_add(1, std::memory_order_relaxed) % kPoolStreams];
  }

  void* allocate(std::size_t bytes, StreamState& owner) override {
    check_not_forked();
    return at(owner.device()).allocator.allocate(bytes, owner);
  }

  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  std::span<StreamState* const> used_on) noexcept override {
    if (forked()) return;  // the child shares no thread that could end the work of these streams
    at(owner.device()).allocator.deallocate(data, bytes, owner, used_on);
  }

  MemoryStats memory_stats(Device device) override { return at(device).allocator.stats(); }
  // What is kept page-locked lies on plain `cpu`, too.
  void empty_cache(Device device) override {
    at(device).allocator.empty_cache();
    MemoryResource* const pinned = pinned_memory.load(std::memory_order_acquire);
    if (pinned && device.is_host_memory()) pinned->empty_cache(device);
  }

  bool can_access(Device, Device owner) override { return owner.is_cpu(); }

  void copy(void* dst, Device, const void* src, Device, std::size_t bytes,
            StreamState& stream) override {
    if (bytes == 0) return;
    const auto run = [=] { copy_in_pieces(dst, src, bytes); };
    submit(static_cast<HostStream&>(stream), bytes, run);
  }

  void copy_pitched(void* dst, Device, const void* src, Device, const Pitched& shape,
                    StreamState& stream) override {
    if (shape.width == 0) return;
    const auto run = [=] {
      auto* to = static_cast<std::byte*>(dst);
      const auto* from = static_cast<const std::byte*>(src);
      in_pieces(shape.rows, shape.width, [=](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
          std::memcpy(to + row * shape.dst_pitch, from + row * shape.src_pitch, shape.width);
        }
      });
    };
    submit(static_cast<HostStream&>(stream), shape.width * shape.rows, run);
  }

  // Where no stream has anything to do first, the caller does all of them, with the help of
  // whoever has time. They are divided together, so that each core has the same part of them every
  // time they come.
  void copy_all(std::span<const CopyOrder> orders) override {
    std::size_t bytes = 0;
    for (const CopyOrder& order : orders) bytes += order.bytes();
    const auto by_caller = [bytes](const CopyOrder& order) {
      const HostStream& stream = stream_of(order);
      return stream.mode() == HostStream::Mode::immediate ||
             (bytes <= kSmallCopies && stream.idle());
    };
    if (!std::all_of(orders.begin(), orders.end(), by_caller)) return Backend::copy_all(orders);
    for (const CopyOrder& order : orders) stream_of(order).settle();
    if (!profile::enabled()) return copy_in_pieces(orders);
    std::deque<profile::RecordFunction> ranges;
    for (const CopyOrder& order : orders) {
      ranges.emplace_back(profile::Literal("copy"), row_of(stream_of(order)),
                          profile::RangeDetails{.bytes = order.bytes()});
    }
    copy_in_pieces(orders);
  }

  // A copy of up to this size may run in its issuer when the stream is idle.
  static constexpr std::size_t kSmallCopy = std::size_t{64} << 10;
  // And so may several that are issued together, up to this size in all, for which two cores need
  // about 100 µs: whoever computes with the copies waits for them, and meanwhile the caller's core
  // would be idle, or the caller's device ahead of the others.
  static constexpr std::size_t kSmallCopies = std::size_t{4} << 20;

 private:
  static constexpr std::size_t kPoolStreams = 8;

  struct PerDevice {
    explicit PerDevice(Device device)
        : allocator(device),
          compute(device, HostStream::Mode::immediate),
          copy(device,
               device.is_host_memory() ? HostStream::Mode::immediate : HostStream::Mode::queued) {
      for (auto& stream : pool) {
        stream = std::make_unique<HostStream>(device, HostStream::Mode::immediate);
      }
    }
    HostAllocator allocator;
    HostStream compute;
    HostStream copy;
    std::array<std::unique_ptr<HostStream>, kPoolStreams> pool;
    std::atomic<std::size_t> next_pool{0};
  };

  HostBackend() {
    const int count = device_count(DeviceType::cpu);
    for (int i = -1; i < count; ++i) {
      devices_.push_back(std::make_unique<PerDevice>(Device(DeviceType::cpu, i)));
    }
  }

  PerDevice& at(Device device) { return *devices_[static_cast<std::size_t>(device.index + 1)]; }

  static HostStream& stream_of(const CopyOrder& order) {
    return static_cast<HostStream&>(*order.stream);
  }

  // Where a timeline has the copies of a stream.
  static profile::Row row_of(HostStream& stream) {
    if (!profile::enabled()) return {};
    const bool copies = &stream == &instance().copy_stream(stream.device());
    return {stream.device(), copies ? profile::Row::Kind::copy : profile::Row::Kind::compute};
  }

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
