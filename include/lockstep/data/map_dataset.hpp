// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace lockstep::data {

// The samples of a dataset, each passed through `transform`.
//
// The transform takes a sample and, optionally, a Generator&, from which it then draws everything
// random: the result is the same with any number of workers, and differs in each epoch. (Numbers
// from default_generator() would depend on the order in which workers draw.) A MapDataset may be
// mapped in turn; both transforms then draw from the same generator, one after the other.
//
// **Torch counterpart.** torch::data::datasets::MapDataset; the `transform` of torchvision's
// datasets.
// **Threads and exceptions.** With several workers the transform is called concurrently. Its
// exceptions are thrown to the loop, at their batch.
// **Example.**
//   ls::data::MapDataset flipped{images, [](std::array<ls::Tensor, 2> sample, ls::Generator& g) {
//     if (g.uniform() < 0.5) sample[0] = flip(sample[0]);
//     return sample;
//   }};
template <SampleDataset D, class Transform>
class MapDataset {
 public:
  using Sample = detail::SampleOf<D>;
  static constexpr bool kTakesGenerator = std::is_invocable_v<const Transform&, Sample, Generator&>;
  static_assert(
      kTakesGenerator || std::is_invocable_v<const Transform&, Sample>,
      "lockstep: the transform of a MapDataset takes a sample of its dataset, or a sample "
      "and a Generator&, and is callable as const");

  MapDataset(D dataset, Transform transform)
      : dataset_(std::move(dataset)), transform_(std::move(transform)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(dataset_.size()); }

  auto get(std::int64_t index) const requires(!kTakesGenerator && !RandomSampleDataset<D>) {
    return std::invoke(transform_, dataset_.get(index));
  }
  auto get(std::int64_t index, Generator& generator) const
      requires(kTakesGenerator || RandomSampleDataset<D>) {
    if constexpr (kTakesGenerator) {
      return std::invoke(transform_, detail::get_sample(dataset_, index, generator), generator);
    } else {
      return std::invoke(transform_, detail::get_sample(dataset_, index, generator));
    }
  }

  const D& dataset() const { return dataset_; }

 private:
  D dataset_;
  Transform transform_;
};

}  // namespace lockstep::data
