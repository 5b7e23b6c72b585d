// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/loading/any_sampler.hpp>
#include <lockstep/error.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::data::detail {

LOCKSTEP_INLINE std::vector<std::int64_t> AnySampler::indices(std::int64_t size,
                                                              std::uint64_t epoch) const {
  std::vector<std::int64_t> order = sampler_->indices(size, epoch);
  for (const std::int64_t index : order) {
    check<IndexError>(index >= 0 && index < size, "DataLoader: the sampler drew sample ", index,
                      ", but the dataset has ", size);
  }
  return order;
}

}  // namespace lockstep::data::detail
