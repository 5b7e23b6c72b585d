// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/parallel/split.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_chunk_sizes(std::int64_t rows, std::size_t devices,
                                       const std::vector<std::int64_t>& sizes) {
  check<ValueError>(sizes.size() == devices,
                    "Expected devices and chunk_sizes to be of same length, but got ", devices,
                    " devices and ", sizes.size(), " chunk sizes");
  std::int64_t total = 0;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    check<ValueError>(size >= 0, "expected non-negative chunk sizes, got ", size);
    fits = fits && !__builtin_add_overflow(total, size, &total);
  }
  check<ValueError>(fits, "expected chunk sizes to sum to ", rows,
                    ", the number of rows, but they sum to more than 64 bits hold");
  check<ValueError>(total == rows, "expected chunk sizes to sum to ", rows,
                    ", the number of rows, but they sum to ", total);
}

// Chunk i ends at the rounded share of the weights up to it, but leaves a row for each later chunk.
inline std::vector<std::int64_t> chunks_in_proportion(std::int64_t rows, std::int64_t devices,
                                                      const std::vector<double>& weights) {
  const auto count = std::min(devices, rows);
  const double total = std::accumulate(weights.begin(), weights.begin() + count, 0.0);
  std::vector<std::int64_t> sizes;
  double so_far = 0;
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    so_far += weights[static_cast<std::size_t>(i)];
    const double ideal = std::round(static_cast<double>(rows) * (so_far / total));
    const std::int64_t most = rows - (count - 1 - i);
    const std::int64_t end = ideal >= static_cast<double>(most)
                                 ? most
                                 : std::max(static_cast<std::int64_t>(ideal), start + 1);
    sizes.push_back(end - start);
    start = end;
  }
  return sizes;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Split Split::sizes(std::vector<std::int64_t> sizes) {
  Split split(Rule::sizes);
  split.sizes_ = std::move(sizes);
  return split;
}

LOCKSTEP_INLINE Split Split::weights(std::vector<double> weights) {
  for (const double weight : weights) {
    check<ValueError>(weight > 0 && detail::is_finite(weight),
                      "Split::weights: expected positive numbers, got ", weight);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  check<ValueError>(detail::is_finite(sum),
                    "Split::weights: expected weights whose sum is finite, got ", sum);
  Split split(Rule::weights);
  split.weights_ = std::move(weights);
  return split;
}

LOCKSTEP_INLINE Split Split::at_least(std::int64_t rows) const {
  check<ValueError>(rows >= 1, "Split::at_least: expected at least 1 row, got ", rows);
  Split split = *this;
  split.least_ = rows;
  return split;
}

LOCKSTEP_INLINE Split Split::with_first(std::size_t i) const {
  Split split = *this;
  const auto bring = [i](auto& list) {
    const auto place = static_cast<std::ptrdiff_t>(i);
    if (i < list.size()) {
      std::rotate(list.begin(), list.begin() + place, list.begin() + place + 1);
    }
  };
  bring(split.sizes_);
  bring(split.weights_);
  return split;
}

LOCKSTEP_INLINE std::vector<std::int64_t> Split::divide(std::int64_t rows,
                                                        std::int64_t devices) const {
  if (rule_ == Rule::weights) return detail::chunks_in_proportion(rows, devices, weights_);
  std::vector<std::int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(devices));
  if (rule_ == Rule::balanced) {
    const std::int64_t count = std::min(devices, rows);
    for (std::int64_t i = 0; i < count; ++i) {
      sizes.push_back(rows / count + (i < rows % count ? 1 : 0));
    }
  } else {
    const std::int64_t size = rows / devices + (rows % devices == 0 ? 0 : 1);
    for (std::int64_t rest = rows; rest > 0; rest -= size) sizes.push_back(std::min(rest, size));
  }
  return sizes;
}

LOCKSTEP_INLINE std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                                      const Split& split) {
  check<ValueError>(devices > 0, "Expected at least one device to scatter to");
  check<ValueError>(rows >= 0, "split_sizes: expected at least 0 rows, got ", rows);
  if (split.rule_ == Split::Rule::sizes) {
    detail::check_chunk_sizes(rows, devices, split.sizes_);
    return split.sizes_;
  }
  check<ValueError>(split.rule_ != Split::Rule::weights || split.weights_.size() == devices,
                    "Split::weights: expected one for each of ", devices, " devices, but got ",
                    split.weights_.size());
  if (rows == 0) return std::vector<std::int64_t>(devices, 0);
  auto used = static_cast<std::int64_t>(devices);
  std::vector<std::int64_t> sizes = split.divide(rows, used);
  while (sizes.size() > 1 && *std::min_element(sizes.begin(), sizes.end()) < split.least_) {
    sizes = split.divide(rows, --used);
  }
  return sizes;
}

}  // namespace lockstep
