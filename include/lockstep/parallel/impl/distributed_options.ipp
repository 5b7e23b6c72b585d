// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/distributed_options.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

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
    check<ValueError>(std::isfinite(mebibytes) && mebibytes >= 0 && mebibytes < 1e9,
                      "DistributedDataParallel: expected the size of a bucket to be a number of MiB"
                      " of at least 0, got ",
                      mebibytes);
    limits.push_back(static_cast<std::size_t>(mebibytes * 1024 * 1024));
  }
  return limits;
}

}  // namespace lockstep::detail
