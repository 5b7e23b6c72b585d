// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/sampler.hpp>
#include <lockstep/data/weighted_random_sampler.hpp>
#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/tensor/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::data {

LOCKSTEP_INLINE WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights,
                                                             std::int64_t num_samples,
                                                             bool replacement, std::uint64_t seed)
    : weights_(std::move(weights)),
      num_samples_(num_samples),
      replacement_(replacement),
      seed_(seed) {
  check<ValueError>(num_samples > 0,
                    "WeightedRandomSampler: num_samples should be a positive integer value, but "
                    "got num_samples=",
                    num_samples);
  double sum = 0;
  std::int64_t possible = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    check<ValueError>(weights_[i] >= 0 && lockstep::detail::is_finite(weights_[i]),
                      "WeightedRandomSampler: weight ", i, " is ", weights_[i],
                      ", expected a finite number of at least 0");
    sum += weights_[i];
    possible += weights_[i] > 0 ? 1 : 0;
  }
  const std::int64_t wanted = replacement ? 1 : num_samples;
  check<ValueError>(possible >= wanted, "WeightedRandomSampler: ", possible,
                    " of the weights are above 0, at least ", wanted, " must be",
                    replacement ? "" : " to draw so many samples without replacement");
  check<ValueError>(lockstep::detail::is_finite(sum),
                    "WeightedRandomSampler: the sum of the weights is more "
                    "than a double can hold");
}

LOCKSTEP_INLINE std::vector<std::int64_t> WeightedRandomSampler::indices(
    std::int64_t size, std::uint64_t epoch) const {
  check<ValueError>(static_cast<std::int64_t>(weights_.size()) == size,
                    "WeightedRandomSampler: got ", weights_.size(),
                    " weights for a dataset of size ", size);
  Generator generator(detail::spread_seed(seed_, epoch));
  return replacement_ ? draw(generator) : draw_without_replacement(generator);
}

LOCKSTEP_INLINE std::vector<std::int64_t> WeightedRandomSampler::draw(Generator& generator) const {
  std::vector<double> sums(weights_.size());
  double sum = 0;
  std::size_t last = 0;  // the last sample with a weight above 0
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0) last = i;
    sums[i] = sum += weights_[i];
  }
  std::vector<std::int64_t> order = detail::list_of(num_samples_);
  for (std::int64_t& index : order) {
    const auto place = std::upper_bound(sums.begin(), sums.end(), generator.uniform() * sum);
    index = std::min(place - sums.begin(), static_cast<std::ptrdiff_t>(last));
  }
  return order;
}

LOCKSTEP_INLINE std::vector<std::int64_t> WeightedRandomSampler::draw_without_replacement(
    Generator& generator) const {
  std::vector<std::pair<double, std::int64_t>> times;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double time = -std::log(1.0 - generator.uniform());
    if (weights_[i] == 0) continue;
    // Logarithms, since a quotient by a tiny weight would overflow.
    times.emplace_back(std::log(time) - std::log(weights_[i]), static_cast<std::int64_t>(i));
  }
  const auto end = times.begin() + num_samples_;
  std::partial_sort(times.begin(), end, times.end());
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(num_samples_));
  for (auto time = times.begin(); time != end; ++time) order.push_back(time->second);
  return order;
}

}  // namespace lockstep::data
