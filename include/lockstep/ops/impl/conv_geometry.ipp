// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/conv_geometry.hpp>

#include <algorithm>
#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE std::int64_t ConvGeometry::images_at_once() const {
  constexpr std::int64_t kColumns = 256;
  return std::max<std::int64_t>(1, std::min(batch, kColumns / pixels()));
}

LOCKSTEP_INLINE Inside::Inside(std::int64_t out, std::int64_t in, std::int64_t stride,
                               std::int64_t offset) {
  const std::int64_t last = in - 1 - offset;
  begin = offset >= 0 ? 0 : std::min(out, (stride - 1 - offset) / stride);
  end = last < 0 ? begin : std::clamp(last / stride + 1, begin, out);
}

}  // namespace lockstep::detail
