// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE std::vector<std::vector<std::size_t>> compute_bucket_assignment_by_size(
    const std::vector<Tensor>& tensors, const std::vector<std::size_t>& size_limits,
    const std::vector<bool>& alone, const std::vector<std::size_t>& tensor_indices) {
  constexpr const char* kName = "compute_bucket_assignment_by_size: ";
  check<ValueError>(!size_limits.empty(), kName, "expected at least one size limit");
  check<ValueError>(alone.empty() || alone.size() == tensors.size(), kName, alone.size(),
                    " marks were given for ", tensors.size(), " tensors");
  check<ValueError>(tensor_indices.empty() || tensor_indices.size() == tensors.size(), kName,
                    tensor_indices.size(), " indices were given for ", tensors.size(), " tensors");
  return comm::detail::buffer_groups(tensors, size_limits, alone, tensor_indices);
}

}  // namespace lockstep

namespace lockstep::detail {

LOCKSTEP_INLINE std::vector<std::size_t> bucket_limits(
    const DistributedDataParallelOptions& options) {
  check<ValueError>(!options.bucket_cap_mb || options.bucket_cap_mb_list.empty(),
                    "DistributedDataParallel: bucket_cap_mb and bucket_cap_mb_list exclude each "
                    "other");
  std::vector<double> caps = options.bucket_cap_mb_list;
  if (options.bucket_cap_mb) caps.push_back(*options.bucket_cap_mb);
  if (caps.empty()) return {kDefaultFirstBucketBytes, kDefaultBucketBytesCap};
  std::vector<std::size_t> limits;
  for (const double mebibytes : caps) {
    check<ValueError>(is_finite(mebibytes) && mebibytes >= 0 && mebibytes < 1e9,
                      "DistributedDataParallel: expected the size of a bucket to be a number of MiB"
                      " of at least 0, got ",
                      mebibytes);
    limits.push_back(static_cast<std::size_t>(mebibytes * 1024 * 1024));
  }
  return limits;
}

}  // namespace lockstep::detail
