// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Addresses that a tensor surely uses: those of its elements if it is contiguous, else those of the
// first one. They are compared, and not storages, since memory may have been lent twice.
struct MemoryRange {
  explicit MemoryRange(const Tensor& tensor)
      : begin(reinterpret_cast<std::uintptr_t>(tensor.impl()->data())) {
    const auto count = static_cast<std::size_t>(tensor.numel());
    const std::size_t first = std::min<std::size_t>(count, 1);
    end = begin + (tensor.is_contiguous() ? count : first) * element_size(tensor.dtype());
  }

  bool meets(const MemoryRange& other) const {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }

  std::uintptr_t begin;
  std::uintptr_t end;
};

}  // namespace lockstep::detail
