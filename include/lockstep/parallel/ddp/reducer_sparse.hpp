// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

// The mean over the ranks of one sparse gradient, of which each rank lists other rows.
//
// Three collectives: how many rows each rank lists, and then the rows and their values, in pieces
// that are as long as the longest. Every rank adds up all pieces in the order of the ranks, so that
// all get the same bits. Where the group sums in that order, too (reduce_ranks.hpp), they are those
// of a dense gradient, which adds zeros besides.
//
// The first is issued on construction, the others by `exchange`, which waits for the first: every
// rank calls it at the same place among its other collectives.
//
// Threads: one at a time. The gradient is used on the streams that are current in each call.
class SparseMean {
 public:
  SparseMean(distributed::ProcessGroup group, const Tensor& gradient);

  void exchange();

  // The mean times `factor`, coalesced.
  Tensor wait(double factor);

 private:
  TensorOptions on_device(Dtype dtype) const {
    return {.dtype = dtype, .device = gradient_.device()};
  }

  static Tensor flat(const Tensor& indices) {
    return make_view(indices, {indices.numel()}, {1}, indices.impl()->offset);
  }

  const distributed::ProcessGroup group_;
  const Tensor gradient_;  // coalesced
  const Tensor counts_;
  std::vector<std::int64_t> lengths_;  // what the counts are, once they are there
  Tensor indices_;                     // of all ranks, each in a piece of the longest's length
  Tensor values_;
  std::vector<distributed::Work> works_;  // what has been issued and not been waited for
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_sparse.ipp>
#endif
