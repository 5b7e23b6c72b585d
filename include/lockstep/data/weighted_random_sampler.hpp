// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::data {

// Draws `num_samples` samples in each epoch, sample i with a probability in proportion to
// weights[i]: to see the samples of a rare class as often as those of the others, for instance.
//
// With replacement each draw is independent of the others, so that a sample may come many times.
// Without it a sample comes once at most, and each draw is among those that are left.
//
// **Torch counterpart.** torch.utils.data.WeightedRandomSampler; the orders differ.
// **Threads and exceptions.** ValueError for fewer than one sample, for a weight that is negative
// or not finite, for weights of which too few are above 0, and, when drawn from, for a dataset of
// another size than there are weights.
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
  // The sample where the sum of the weights up to it first exceeds a random part of the whole sum;
  // never one of weight 0, with which the sum does not grow.
  std::vector<std::int64_t> draw(Generator& generator) const;

  // The smallest of exponentially distributed times whose rates are the weights come in the order
  // of draws without replacement (Efraimidis and Spirakis, 2006).
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
