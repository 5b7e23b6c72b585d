// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/host/in_pieces.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/profile/record_function.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>

namespace lockstep::detail {

// Out of line: `instance` is inlined in many places.
[[gnu::noinline]] LOCKSTEP_INLINE HostBackend& HostBackend::make() {
  static HostBackend& backend = *new HostBackend;
  instance_.store(&backend, std::memory_order_release);
  return backend;
}

LOCKSTEP_INLINE DeviceProperties HostBackend::properties(Device device) {
  const int cores = static_cast<int>(usable_cores());
  const int slices = device.is_host_memory() ? 1 : device_count(DeviceType::cpu);
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  return {.name = "host",
          .total_memory = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
          .multi_processor_count = std::max(1, cores / slices)};
}

LOCKSTEP_INLINE HostStream& HostBackend::pool_stream(Device device) {
  PerDevice& mine = at(device);
  return *mine.pool[mine.next_pool.fetch_add(1, std::memory_order_relaxed) % kPoolStreams];
}

LOCKSTEP_INLINE void* HostBackend::allocate(std::size_t bytes, StreamState& owner) {
  check_not_forked();
  return at(owner.device()).allocator.allocate(bytes, owner);
}

LOCKSTEP_INLINE void HostBackend::deallocate(void* data, std::size_t bytes, StreamState& owner,
                                             UsedOn&& used_on) noexcept {
  if (streams_are_gone()) return;
  at(owner.device()).allocator.deallocate(data, bytes, owner, std::move(used_on));
}

LOCKSTEP_INLINE void HostBackend::empty_cache(Device device) {
  at(device).allocator.empty_cache();
  MemoryResource* const pinned = pinned_memory.load(std::memory_order_acquire);
  if (pinned && device.is_host_memory()) pinned->empty_cache(device);
}

LOCKSTEP_INLINE void HostBackend::copy(void* dst, Device, const void* src, Device,
                                       std::size_t bytes, StreamState& stream) {
  if (bytes == 0) return;
  const auto run = [=] { copy_in_pieces(dst, src, bytes); };
  submit(static_cast<HostStream&>(stream), bytes, run);
}

LOCKSTEP_INLINE void HostBackend::copy_pitched(void* dst, Device, const void* src, Device,
                                               const Pitched& shape, StreamState& stream) {
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

LOCKSTEP_INLINE void HostBackend::copy_all(std::span<const CopyOrder> orders) {
  std::size_t bytes = 0;
  for (const CopyOrder& order : orders) bytes += order.bytes();
  const auto by_caller = [bytes](const CopyOrder& order) {
    const HostStream& stream = stream_of(order);
    return stream.mode() == HostStream::Mode::immediate || (bytes <= kSmallCopies && stream.idle());
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

LOCKSTEP_INLINE std::string HostBackend::misplaced(const void* data, Device device) {
  Backend* const cuda = cuda_backend.load(std::memory_order_acquire);
  return cuda ? cuda->misplaced(data, device) : std::string();
}

LOCKSTEP_INLINE HostBackend::PerDevice::PerDevice(Device device) : allocator(device) {
  const auto make = [device](HostStream::Mode mode) {
    return make_stream ? make_stream(device, mode) : std::make_unique<HostStream>(device, mode);
  };
  using enum HostStream::Mode;
  compute = make(immediate);
  copy = make(device.is_host_memory() ? immediate : queued);
  for (auto& stream : pool) stream = make(immediate);
}

LOCKSTEP_INLINE HostBackend::HostBackend() {
  const int count = device_count(DeviceType::cpu);
  for (int i = -1; i < count; ++i) {
    devices_.push_back(std::make_unique<PerDevice>(Device(DeviceType::cpu, i)));
  }
}

LOCKSTEP_INLINE profile::Row HostBackend::row_of(HostStream& stream) {
  if (!profile::enabled()) return {};
  const bool copies = &stream == &instance().copy_stream(stream.device());
  return {stream.device(), copies ? profile::Row::Kind::copy : profile::Row::Kind::compute};
}

}  // namespace lockstep::detail
