// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/parallel/replicas/data_parallel_call.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void BufferMerge::finish(const std::vector<double>& weights) const {
  const NoGradGuard guard;
  for (std::size_t j = 0; j < originals_.size(); ++j) {
    std::vector<Tensor> parts;
    bool changed = false;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      parts.push_back(copies_[i][j]);
      changed = changed || copies_[i][j].version() != versions_[i][j];
    }
    if (!changed || !is_floating_point(originals_[j].dtype())) continue;
    copy_into(originals_[j],
              nested::weighted_sum(std::move(parts), weights, originals_[j].device()));
  }
}

}  // namespace lockstep::detail
