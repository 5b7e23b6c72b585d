// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/softmax_kernels.hpp>

#include <algorithm>
#include <cstddef>

namespace lockstep::cuda {

// Divides a tensor of [outer, count, inner] into parts of [n, count, inner] with at most `most`
// elements each, which is what a library can count. The tensor has some elements.
class SoftmaxParts {
 public:
  SoftmaxParts(const detail::Axis& axis, std::size_t most)
      : outer_(axis.outer), each_(axis.count * axis.inner), at_once_(most / each_) {}

  // False if one [count, inner] alone is too large.
  bool possible() const { return at_once_ > 0; }

  // Calls part(first, n) for each, from its element number `first` on.
  template <class Part>
  void for_each(const Part& part) const {
    for (std::size_t done = 0; done < outer_; done += at_once_) {
      part(done * each_, std::min(at_once_, outer_ - done));
    }
  }

 private:
  std::size_t outer_;
  std::size_t each_;  // elements of one [count, inner]
  std::size_t at_once_;
};

}  // namespace lockstep::cuda
