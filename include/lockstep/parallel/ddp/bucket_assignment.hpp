// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

// torch's sizes: 25 MiB a bucket, and 1 MiB for the first, so that the first all-reduce starts
// early.
inline constexpr std::size_t kDefaultBucketBytesCap = std::size_t{25} << 20;
inline constexpr std::size_t kDefaultFirstBucketBytes = std::size_t{1} << 20;

// Divides tensors into buckets: those of one dtype and device share a bucket, in their order, until
// it has reached its limit.
//
// The limits are those of the first, second, … bucket of each dtype and device; the last one is
// that of all further buckets. A tensor that is marked in `alone` gets a bucket of its own. With
// `tensor_indices`, these are the tensors' numbers in the result, and the buckets come in the order
// in which they have reached their limits, those that have not last. Without it a tensor's number
// is its place, and the buckets are sorted by their lowest.
//
// **Torch counterpart.** torch.distributed._compute_bucket_assignment_by_size, where `alone` is
// expect_sparse_gradient.
// **Threads and exceptions.** A pure function. A ValueError if there is no limit, or if there are
// marks or numbers, but not as many as tensors.
std::vector<std::vector<std::size_t>> compute_bucket_assignment_by_size(
    const std::vector<Tensor>& tensors, const std::vector<std::size_t>& size_limits,
    const std::vector<bool>& alone = {}, const std::vector<std::size_t>& tensor_indices = {});

namespace detail {

// The sizes of the first, second, … bucket in bytes. A ValueError for options that give no sizes.
std::vector<std::size_t> bucket_limits(const DistributedDataParallelOptions& options);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/bucket_assignment.ipp>
#endif
