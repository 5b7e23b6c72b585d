// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// How the rows of a batch are divided among devices.
enum class Split {
  chunk,  // torch's rule: chunks of ⌈n/k⌉, the last one shorter, trailing devices may get none
  balanced,  // sizes differ by at most one; no device is idle while there is a row for it
};

// The sizes of the chunks of `rows` rows over `devices` devices.
//
// No chunk is empty, so there may be fewer chunks than devices; but 0 rows are one chunk of 0 rows
// for each device, so that the module still runs.
//
// **Torch counterpart.** Tensor.chunk, for Split::chunk.
inline std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                             Split split = Split::chunk) {
  check<ValueError>(devices > 0, "Expected at least one device to scatter to");
  const auto count = static_cast<std::int64_t>(devices);
  if (rows == 0) return std::vector<std::int64_t>(devices, 0);
  std::vector<std::int64_t> sizes;
  if (split == Split::balanced) {
    const std::int64_t chunks = std::min(count, rows);
    for (std::int64_t i = 0; i < chunks; ++i) {
      sizes.push_back(rows / chunks + (i < rows % chunks ? 1 : 0));
    }
    return sizes;
  }
  const std::int64_t size = (rows + count - 1) / count;
  for (std::int64_t rest = rows; rest > 0; rest -= size) sizes.push_back(std::min(rest, size));
  return sizes;
}

}  // namespace lockstep
