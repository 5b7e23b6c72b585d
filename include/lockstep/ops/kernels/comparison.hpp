// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>

namespace lockstep::detail {

// What a comparison asks of two elements; named as its operation is.
enum class By : std::uint8_t { eq, ne, lt, le, gt, ge };

}  // namespace lockstep::detail
