// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/random.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::data {

// Decides which samples a pass over a dataset visits, and in what order.
//
// `indices(size, epoch)` depends on its arguments alone, so every process and thread gets the same.
// A sampler may also say how many samples it draws, by `count(size)`; otherwise they are drawn to
// be counted.
//
// **Torch counterpart.** torch.utils.data.Sampler.
template <class S>
concept Sampler = requires(const S& sampler, std::int64_t size, std::uint64_t epoch) {
  { sampler.indices(size, epoch) } -> std::same_as<std::vector<std::int64_t>>;
};

// A sampler that can say how many samples it draws without drawing them.
template <class S>
concept CountingSampler = Sampler<S> && requires(const S& sampler, std::int64_t size) {
  { sampler.count(size) } -> std::convertible_to<std::int64_t>;
};

namespace detail {

// A seed for `place` of the sequence that `seed` began, unrelated to those of its neighbours.
inline std::uint64_t spread_seed(std::uint64_t seed, std::uint64_t place) {
  const auto spread = [](std::uint64_t value) {
    return lockstep::detail::mix_bits(value + lockstep::detail::kGoldenGamma);
  };
  return spread(spread(seed) ^ place);
}

// A list of `count` indices. A ValueError for a count that no list can have.
inline std::vector<std::int64_t> list_of(std::int64_t count) {
  check<ValueError>(
      count >= 0 && static_cast<std::size_t>(count) <= std::vector<std::int64_t>().max_size(),
      "a sampler cannot draw ", count, " samples");
  return std::vector<std::int64_t>(static_cast<std::size_t>(count));
}

// The values in an epoch's random order, by Fisher and Yates' method.
inline std::vector<std::int64_t> shuffled(std::vector<std::int64_t> values, std::uint64_t seed,
                                          std::uint64_t epoch) {
  Generator generator(spread_seed(seed, epoch));
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[generator.below(i)]);
  }
  return values;
}

}  // namespace detail

// 0, 1, 2, … in every epoch.
//
// **Torch counterpart.** torch.utils.data.SequentialSampler.
struct SequentialSampler {
  static std::int64_t count(std::int64_t size) { return size; }

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t /*epoch*/) const {
    std::vector<std::int64_t> order = detail::list_of(size);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    return order;
  }
};

// Every sample once, in a new random order for each epoch. The same seed gives the same orders on
// every machine.
//
// **Torch counterpart.** torch.utils.data.RandomSampler; the orders differ.
class RandomSampler {
 public:
  explicit RandomSampler(std::uint64_t seed) : seed_(seed) {}

  static std::int64_t count(std::int64_t size) { return size; }

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const {
    return detail::shuffled(SequentialSampler().indices(size, epoch), seed_, epoch);
  }

 private:
  std::uint64_t seed_;
};

// Each of the given samples once, in a new random order for each epoch: for a part of a dataset,
// such as a training part.
//
// **Torch counterpart.** torch.utils.data.SubsetRandomSampler; the orders differ.
class SubsetRandomSampler {
 public:
  explicit SubsetRandomSampler(std::vector<std::int64_t> subset, std::uint64_t seed = 0)
      : subset_(std::move(subset)), seed_(seed) {}

  std::int64_t count(std::int64_t /*size*/) const {
    return static_cast<std::int64_t>(subset_.size());
  }

  std::vector<std::int64_t> indices(std::int64_t /*size*/, std::uint64_t epoch) const {
    return detail::shuffled(subset_, seed_, epoch);
  }

 private:
  std::vector<std::int64_t> subset_;
  std::uint64_t seed_;
};

}  // namespace lockstep::data
