// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
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
  SparseMean(distributed::ProcessGroup group, const Tensor& gradient)
      : group_(std::move(group)),
        gradient_(gradient.coalesce()),
        counts_(empty({group_.size()}, on_device(Dtype::i64))),
        works_({group_.all_gather_into_tensor(
            counts_, tensor({gradient_.indices().size(1)}, gradient_.device()))}) {}

  void exchange() {
    works_[0].wait();
    lengths_ = numbers_of(counts_);
    const std::int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    works_.clear();
    if (longest == 0) return;
    gradient_.record_stream(current_stream(gradient_.device()));
    const Tensor indices = zeros({1, longest}, on_device(Dtype::i64));
    const Shape piece = shape_of_rows(gradient_.sizes(), longest);
    const Tensor values = zeros(piece, on_device(gradient_.dtype()));
    const std::int64_t own = rows_listed(gradient_);
    if (own > 0) {
      copy_into(part_of(indices, 1, 0, own), gradient_.indices());
      copy_into(part_of(values, 0, 0, own), gradient_.values());
    }
    indices_ = empty({group_.size() * longest}, on_device(Dtype::i64));
    values_ = empty(shape_of_rows(piece, indices_.numel()), on_device(gradient_.dtype()));
    works_.push_back(group_.all_gather_into_tensor(indices_, indices));
    works_.push_back(group_.all_gather_into_tensor(values_, values));
  }

  // The mean times `factor`, coalesced.
  Tensor wait(double factor) {
    for (const distributed::Work& work : works_) work.wait();
    const Shape& shape = gradient_.sizes();
    if (works_.empty()) return empty_sparse(shape, gradient_.options());
    const std::int64_t longest = indices_.numel() / group_.size();
    std::vector<Tensor> parts;
    std::int64_t first = 0;  // row of a piece
    for (const std::int64_t rows : lengths_) {
      parts.push_back(make_sparse(part_of(indices_, 0, first, rows),
                                  part_of(values_, 0, first, rows), shape, true));
      first += longest;
    }
    const Tensor sum = concatenated(parts, gradient_.device()).coalesce();
    Tensor mean = sum.values() / static_cast<double>(group_.size());
    if (factor != 1) mean = mean * factor;
    return make_sparse(sum.indices(), mean, shape, true);
  }

 private:
  TensorOptions on_device(Dtype dtype) const {
    return {.dtype = dtype, .device = gradient_.device()};
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
