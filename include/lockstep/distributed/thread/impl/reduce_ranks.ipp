// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/thread/reduce_ranks.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void reduce_ranks(Dtype dtype, ReduceOp op, std::span<const void* const> inputs,
                                  std::span<void* const> outputs, std::size_t begin,
                                  std::size_t end) {
  dispatch_all(dtype, [&]<class T>(T) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return reduce_elements<T, ReduceOp::sum>(inputs, outputs, begin, end, op == ReduceOp::avg);
      case ReduceOp::product:
        return reduce_elements<T, ReduceOp::product>(inputs, outputs, begin, end, false);
      case ReduceOp::min:
        return reduce_elements<T, ReduceOp::min>(inputs, outputs, begin, end, false);
      case ReduceOp::max:
        return reduce_elements<T, ReduceOp::max>(inputs, outputs, begin, end, false);
    }
  });
}

LOCKSTEP_INLINE std::size_t share_begin(std::size_t count, Dtype dtype, std::size_t rank,
                                        std::size_t size) {
  const std::size_t line = 64 / element_size(dtype);
  const std::size_t lines = (count + line - 1) / line;
  return std::min(count, lines * rank / size * line);
}

}  // namespace lockstep::distributed::detail
