// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/sampler.hpp>
#include <lockstep/error.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

// Holds a sampler of any type, and checks what it draws. Copies share the sampler, which never
// changes.
class AnySampler {
 public:
  template <Sampler S>
  explicit AnySampler(S sampler) {
    const auto shared = std::make_shared<const S>(std::move(sampler));
    indices_ = [shared](std::int64_t size, std::uint64_t epoch) {
      return shared->indices(size, epoch);
    };
    if constexpr (CountingSampler<S>) {
      count_ = [shared](std::int64_t size) { return shared->count(size); };
    }
  }

  std::vector<std::int64_t> indices(std::int64_t size, std::uint64_t epoch) const {
    std::vector<std::int64_t> order = indices_(size, epoch);
    for (const std::int64_t index : order) {
      check<IndexError>(index >= 0 && index < size, "DataLoader: the sampler drew sample ", index,
                        ", but the dataset has ", size);
    }
    return order;
  }

  // The number of indices that `indices` returns.
  std::int64_t count(std::int64_t size, std::uint64_t epoch) const {
    return count_ ? count_(size) : static_cast<std::int64_t>(indices_(size, epoch).size());
  }

 private:
  std::function<std::vector<std::int64_t>(std::int64_t size, std::uint64_t epoch)> indices_;
  std::function<std::int64_t(std::int64_t size)> count_;  // empty if the sampler has none
};

}  // namespace lockstep::data::detail
