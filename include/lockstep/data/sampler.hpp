// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/random.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::data {

// Says which samples a pass over a dataset visits, and in what order.
//
// `indices(size, epoch)` depends on nothing else, so every process and thread gets the same.
//
// **Torch counterpart.** torch.utils.data.Sampler.
template <class S>
concept Sampler = requires(const S& sampler, std::int64_t size, std::uint64_t epoch) {
  { sampler.indices(size, epoch) } -> std::same_as<std::vector<std::int64_t>>;
};

// 0, 1, 2, … in every epoch.
//
// **Torch counterpart.** torch.utils.data.SequentialSampler.
struct SequentialSampler {
  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t /*epoch*/) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    return order;
  }
};

// Every sample once, in an order that is drawn anew for each epoch by Fisher and Yates' method. The
// same seed gives the same orders on every machine.
//
// **Torch counterpart.** torch.utils.data.RandomSampler; the orders differ.
class RandomSampler {
 public:
  explicit RandomSampler(std::uint64_t seed) : seed_(seed) {}

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const {
    std::vector<std::int64_t> order = SequentialSampler().indices(size, epoch);
    const auto spread = [](std::uint64_t value) {
      return lockstep::detail::mix_bits(value + lockstep::detail::kGoldenGamma);
    };
    Generator generator(spread(spread(seed_) ^ epoch));
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[generator.below(i)]);
    }
    return order;
  }

 private:
  std::uint64_t seed_;
};

}  // namespace lockstep::data
