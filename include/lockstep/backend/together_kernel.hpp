// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

#include <cstddef>

namespace lockstep::detail {

// The bytes of kernels that one launch takes. CUDA's limit for all arguments is 4096.
inline constexpr std::size_t kTogetherBytes = 4064;

// Several kernels of one type in at most `bytes` bytes, over the elements of all: those of kernel k
// end before ends[k]. There is at least one when it is launched.
template <class F, std::size_t bytes = kTogetherBytes>
struct TogetherKernel {
  static constexpr std::size_t kMost =
      (bytes - sizeof(std::size_t)) / (sizeof(F) + sizeof(std::size_t));

  F each[kMost];
  std::size_t ends[kMost];
  std::size_t count;

  std::size_t size() const { return count == 0 ? 0 : ends[count - 1]; }

  // Adds a kernel of so many elements. There must be fewer than kMost.
  void add(const F& functor, std::size_t elements) {
    const std::size_t before = size();
    each[count] = functor;
    ends[count++] = before + elements;
  }

  LOCKSTEP_HD void operator()(std::size_t i) const {
    std::size_t k = 0;
    std::size_t after = count;  // the wanted kernel is in [k, after)
    while (after - k > 1) {
      const std::size_t middle = (k + after) / 2;
      if (i < ends[middle - 1]) {
        after = middle;
      } else {
        k = middle;
      }
    }
    each[k](k == 0 ? i : i - ends[k - 1]);
  }
};

}  // namespace lockstep::detail
