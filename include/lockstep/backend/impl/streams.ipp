// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <exception>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE Backend& backend_of(Device device) {
  check_device(device);
  if (device.is_cpu()) return HostBackend::instance();
  return *cuda_backend.load(std::memory_order_acquire);
}

LOCKSTEP_INLINE void StreamOverrides::push(Stream stream) {
  mutable_list().push_back(stream);
  ++count_;
}

LOCKSTEP_INLINE void StreamOverrides::pop() {
  mutable_list().pop_back();
  --count_;
}

LOCKSTEP_INLINE void StreamOverrides::swap(std::vector<Stream>& other) noexcept {
  if (empty() && other.empty()) return;
  mutable_list().swap(other);
  count_ = mutable_list().size();
}

LOCKSTEP_INLINE std::vector<Stream>& StreamOverrides::mutable_list() {
  thread_local std::vector<Stream> overrides;
  return overrides;
}

LOCKSTEP_INLINE StreamState& default_stream_state(Device device) {
  if (!device.is_cpu()) return backend_of(device).default_stream(device);
  check_device(device);
  return HostBackend::instance().default_stream(device);
}

[[gnu::noinline]] inline Stream overriding_stream(Device device) {
  const auto& overrides = StreamOverrides::list();
  for (auto it = overrides.rbegin(); it != overrides.rend(); ++it) {
    if (it->device() == device) return *it;
  }
  return Stream(default_stream_state(device));
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Stream current_stream(Device device) {
  if (!detail::StreamOverrides::empty()) [[unlikely]]
    return detail::overriding_stream(device);
  return Stream(detail::default_stream_state(device));
}

// The compute stream comes last: a wait for an idle GPU stream costs the host 2 µs, which a wait
// for a busy one after it hides. Both streams have ended if this throws.
LOCKSTEP_INLINE void synchronize(Device device) {
  const Stream streams[] = {copy_stream(device), default_stream(device)};
  const std::exception_ptr error =
      detail::first_thrown_by(streams, [](const Stream& stream) { stream.synchronize(); });
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
