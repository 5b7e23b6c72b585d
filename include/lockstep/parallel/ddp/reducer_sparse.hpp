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

// The mean of one sparse gradient over the ranks, each of which lists its own rows.
//
// Three collectives gather the number of rows that each rank lists, the rows, and their values; the
// last two in pieces as long as the longest. Every rank sums all pieces in the order of the ranks,
// so all get the same bits, and those of a dense gradient if the group sums in that order, too
// (reduce_ranks.hpp).
//
// The constructor issues the first collective. `exchange` waits for it and issues the others; every
// rank calls it at the same place among its other collectives.
//
// Threads: one at a time. Each call uses the gradient on the streams that are current then.
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
  std::vector<std::int64_t> lengths_;  // the values of counts_, once they have arrived
  Tensor indices_;                     // of all ranks, each in a piece of the longest's length
  Tensor values_;
  std::vector<distributed::Work> works_;  // issued and not yet waited for
};

}  // namespace lockstep::detail
