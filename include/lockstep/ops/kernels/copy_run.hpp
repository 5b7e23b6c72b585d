// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>
#include <cstring>

namespace lockstep::detail {

// Copies a run of a few elements, for which a call of memcpy would cost more.
template <class T>
void copy_run(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t kBlock = 16 / static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) std::memcpy(to + i, from + i, 16);
  if (i == count) return;
  if (count >= kBlock) {  // the last block overlaps the one before
    std::memcpy(to + count - kBlock, from + count - kBlock, 16);
  } else {
    for (; i < count; ++i) to[i] = from[i];
  }
}

}  // namespace lockstep::detail
