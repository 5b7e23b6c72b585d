// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

// torch's bucket sizes: 25 MiB, but 1 MiB for the first, so that the first all-reduce starts early.
inline constexpr std::size_t kDefaultBucketBytesCap = std::size_t{25} << 20;
inline constexpr std::size_t kDefaultFirstBucketBytes = std::size_t{1} << 20;

// Groups tensors into buckets: tensors of one dtype and device share a bucket, in their order,
// until it has reached its limit.
//
// size_limits[i] is the limit of the i-th bucket of each dtype and device; the last one is that of
// all further buckets. A tensor marked in `alone` gets a bucket of its own. By default a bucket
// lists its tensors' indices, and buckets are sorted by their lowest. With `tensor_indices` it
// lists those instead, and buckets come in the order in which they reached their limits, unfinished
// ones last.
//
// **Torch counterpart.** torch.distributed._compute_bucket_assignment_by_size, where `alone` is
// expect_sparse_gradient.
// **Threads and exceptions.** A pure function. A ValueError for no limits, or if `alone` or
// `tensor_indices` differs in length from `tensors`.
std::vector<std::vector<std::size_t>> compute_bucket_assignment_by_size(
    const std::vector<Tensor>& tensors, const std::vector<std::size_t>& size_limits,
    const std::vector<bool>& alone = {}, const std::vector<std::size_t>& tensor_indices = {});

namespace detail {

// The limits of the first, second, … bucket in bytes. A ValueError for options that give none.
std::vector<std::size_t> bucket_limits(const DistributedDataParallelOptions& options);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/bucket_assignment.ipp>
#endif
