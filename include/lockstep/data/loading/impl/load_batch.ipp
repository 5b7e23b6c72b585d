// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/data/loading/load_batch.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

namespace lockstep::data::detail {

LOCKSTEP_INLINE void rethrow_naming(const char* what, std::span<const std::int64_t> indices) {
  lockstep::detail::rethrow_as([&](const std::exception& error) {
    std::string text = lockstep::detail::str(error.what(), "; ", what);
    constexpr std::size_t kMost = 20;
    for (const std::int64_t index : indices.first(std::min(indices.size(), kMost))) {
      text += ' ' + std::to_string(index);
    }
    if (indices.size() > kMost) text += " ...";
    return text;
  });
}

}  // namespace lockstep::data::detail
