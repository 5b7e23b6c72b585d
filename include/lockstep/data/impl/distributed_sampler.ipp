// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/distributed_sampler.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

LOCKSTEP_INLINE DistributedSampler::DistributedSampler(std::int64_t num_replicas, std::int64_t rank,
                                                       const DistributedSamplerOptions& options)
    : num_replicas_(num_replicas), rank_(rank), options_(options) {
  check<ValueError>(num_replicas >= 1,
                    "DistributedSampler: expected num_replicas of at least 1, got ", num_replicas);
  check<ValueError>(rank >= 0 && rank < num_replicas, "DistributedSampler: Invalid rank ", rank,
                    ", rank should be in the interval [0, ", num_replicas - 1, "]");
}

LOCKSTEP_INLINE std::int64_t DistributedSampler::count(std::int64_t size) const {
  const bool more = size % num_replicas_ != 0 && !options_.drop_last;
  return size / num_replicas_ + (more ? 1 : 0);
}

LOCKSTEP_INLINE std::vector<std::int64_t> DistributedSampler::indices(std::int64_t size,
                                                                      std::uint64_t epoch) const {
  const std::vector<std::int64_t> all = options_.shuffle
                                            ? RandomSampler(options_.seed).indices(size, epoch)
                                            : SequentialSampler().indices(size, epoch);
  std::vector<std::int64_t> mine(static_cast<std::size_t>(count(size)));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::size_t place =
        i * static_cast<std::size_t>(num_replicas_) + static_cast<std::size_t>(rank_);
    mine[i] = all[place % all.size()];
  }
  return mine;
}

}  // namespace lockstep::data
