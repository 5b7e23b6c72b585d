// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::data {

// Draws `num_samples` samples in each epoch, sample i with a probability proportional to
// weights[i]: for example to see a rare class as often as the others.
//
// With replacement draws are independent, and a sample may come many times. Without it a sample
// comes at most once, and each draw is among those left.
//
// **Torch counterpart.** torch.utils.data.WeightedRandomSampler; the orders differ.
// **Threads and exceptions.** A ValueError for fewer than one sample, for a weight that is negative
// or not finite, for too few weights above 0, and, in `indices`, for a dataset whose size is not
// the number of weights.
// **Example.**
//   ls::data::WeightedRandomSampler even(weights, dataset.size());
//   ls::data::DataLoader loader{dataset, even, {.batch_size = 64}};
class WeightedRandomSampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples,
                        bool replacement = true, std::uint64_t seed = 0);

  std::int64_t count(std::int64_t /*size*/) const { return num_samples_; }

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const;

 private:
  // Draws the samples at which the cumulative sum of weights first exceeds a random part of the
  // whole sum; never one of weight 0, at which the sum does not grow.
  std::vector<std::int64_t> draw(Generator& generator) const;

  // Draws the samples with the smallest exponentially distributed times whose rates are the
  // weights: their order is that of draws without replacement (Efraimidis and Spirakis, 2006).
  std::vector<std::int64_t> draw_without_replacement(Generator& generator) const;

  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
  std::uint64_t seed_;
};

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/weighted_random_sampler.ipp>
#endif
