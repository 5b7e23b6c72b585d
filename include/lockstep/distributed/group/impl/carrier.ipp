// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/error.hpp>

#include <span>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void Carrier::run_on(const Stream& stream, const Call& call,
                                     std::span<const void* const>, std::span<void* const>,
                                     const Done& failed) {
  (void)failed;
  lockstep::detail::fail<DeviceError>(call, " on ", stream.device(),
                                      ": the carrier takes host memory only");
}

LOCKSTEP_INLINE void Carrier::send_on(const Stream& stream, const Message&, const void*, Done) {
  fail_message(stream);
}

LOCKSTEP_INLINE void Carrier::receive_on(const Stream& stream, const Message&, void*, Done) {
  fail_message(stream);
}

LOCKSTEP_INLINE void Carrier::fail_message(const Stream& stream) {
  lockstep::detail::fail<DeviceError>("send or recv on ", stream.device(),
                                      ": the carrier takes host memory only");
}

}  // namespace lockstep::distributed::detail
