// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>

#include <span>

namespace lockstep::detail {

LOCKSTEP_INLINE void Backend::copy_all(std::span<const CopyOrder> orders) {
  for (const CopyOrder& each : orders) {
    if (each.shape.rows == 1) {
      copy(each.dst, each.dst_device, each.src, each.src_device, each.shape.width, *each.stream);
    } else {
      copy_pitched(each.dst, each.dst_device, each.src, each.src_device, each.shape, *each.stream);
    }
  }
}

}  // namespace lockstep::detail
