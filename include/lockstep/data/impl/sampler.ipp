// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

LOCKSTEP_INLINE std::uint64_t spread_seed(std::uint64_t seed, std::uint64_t place) {
  const auto spread = [](std::uint64_t value) {
    return lockstep::detail::mix_bits(value + lockstep::detail::kGoldenGamma);
  };
  return spread(spread(seed) ^ place);
}

LOCKSTEP_INLINE void shuffle(std::vector<std::int64_t>& values, Generator& generator) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[generator.below(i)]);
  }
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

LOCKSTEP_INLINE std::vector<std::int64_t> SequentialSampler::indices(
    std::int64_t size, std::uint64_t /*epoch*/) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

LOCKSTEP_INLINE std::vector<std::int64_t> RandomSampler::indices(std::int64_t size,
                                                                 std::uint64_t epoch) const {
  std::vector<std::int64_t> order = SequentialSampler().indices(size, epoch);
  Generator generator(detail::spread_seed(seed_, epoch));
  detail::shuffle(order, generator);
  return order;
}

LOCKSTEP_INLINE std::vector<std::int64_t> SubsetRandomSampler::indices(std::int64_t /*size*/,
                                                                       std::uint64_t epoch) const {
  std::vector<std::int64_t> order = subset_;
  Generator generator(detail::spread_seed(seed_, epoch));
  detail::shuffle(order, generator);
  return order;
}

}  // namespace lockstep::data
