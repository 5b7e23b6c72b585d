// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/distributed_options.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE BucketLimits::BucketLimits(const DistributedDataParallelOptions& options) {
  check<ValueError>(!options.bucket_cap_mb || options.bucket_cap_mb_list.empty(),
                    "DistributedDataParallel: bucket_cap_mb and bucket_cap_mb_list exclude each "
                    "other");
  if (!options.bucket_cap_mb_list.empty()) {
    for (const double cap : options.bucket_cap_mb_list) limits_.push_back(bytes(cap));
  } else if (options.bucket_cap_mb) {
    limits_ = {bytes(*options.bucket_cap_mb)};
  } else {
    limits_ = {kDefaultFirstBucketBytes, kDefaultBucketBytesCap};
  }
  rebuilds_ = !options.find_unused_parameters || options.static_graph;
  one_at_first_ = rebuilds_ && options.bucket_cap_mb_list.empty();
}

LOCKSTEP_INLINE std::vector<std::size_t> BucketLimits::first() const {
  if (one_at_first_) return {std::numeric_limits<std::size_t>::max()};
  return limits_;
}

LOCKSTEP_INLINE std::size_t BucketLimits::bytes(double mebibytes) {
  check<ValueError>(std::isfinite(mebibytes) && mebibytes >= 0 && mebibytes < 1e9,
                    "DistributedDataParallel: expected the size of a bucket to be a number of MiB"
                    " of at least 0, got ",
                    mebibytes);
  return static_cast<std::size_t>(mebibytes * 1024 * 1024);
}

}  // namespace lockstep::detail
