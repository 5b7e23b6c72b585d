// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {

// How the rows of a batch are divided among devices.
//
// **Example.** ls::DataParallel model{Net{}, ls::devices(), {.split = ls::Split::weights({2, 1})}};
class Split {
 public:
  // Torch's rule: chunks of ⌈n/k⌉, the last one shorter; trailing devices may get none.
  static const Split chunk;
  // Sizes differ by at most one; no device is idle while there is a row for it.
  static const Split balanced;

  // Exactly these sizes, one for each device. They must sum to the rows of every batch.
  static Split sizes(std::vector<std::int64_t> sizes) {
    Split split(Rule::sizes);
    split.sizes_ = std::move(sizes);
    return split;
  }
  // In proportion to positive weights, one for each device: for devices that are not equally fast.
  // No device is idle while there is a row for it.
  static Split weights(std::vector<double> weights) {
    for (const double weight : weights) {
      check<ValueError>(weight > 0 && std::isfinite(weight),
                        "Split::weights: expected positive numbers, got ", weight);
    }
    Split split(Rule::weights);
    split.weights_ = std::move(weights);
    return split;
  }

  // The same, but over as many of the first devices only as get at least so many rows each: for
  // layers that need more than one, such as BatchNorm. Split::sizes does not change.
  Split at_least(std::int64_t rows) const {
    check<ValueError>(rows >= 1, "Split::at_least: expected at least 1 row, got ", rows);
    Split split = *this;
    split.least_ = rows;
    return split;
  }

  // The same where device i has come to the front of the list: its size or weight comes along.
  Split with_first(std::size_t i) const {
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

  friend bool operator==(const Split&, const Split&) = default;
  friend std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                               const Split& split);

 private:
  enum class Rule { chunk, balanced, sizes, weights };
  explicit constexpr Split(Rule rule) : rule_(rule) {}

  static std::vector<std::int64_t> chunks(std::int64_t rows, std::int64_t devices) {
    std::vector<std::int64_t> sizes;
    sizes.reserve(static_cast<std::size_t>(devices));
    const std::int64_t size = (rows + devices - 1) / devices;
    for (std::int64_t rest = rows; rest > 0; rest -= size) sizes.push_back(std::min(rest, size));
    return sizes;
  }

  static std::vector<std::int64_t> even(std::int64_t rows, std::int64_t devices) {
    const std::int64_t count = std::min(devices, rows);
    std::vector<std::int64_t> sizes;
    for (std::int64_t i = 0; i < count; ++i) {
      sizes.push_back(rows / count + (i < rows % count ? 1 : 0));
    }
    return sizes;
  }

  // Chunk i ends where the weights up to it say, rounded, but leaves a row for each chunk.
  static std::vector<std::int64_t> in_proportion(std::int64_t rows, std::int64_t devices,
                                                 const std::vector<double>& weights) {
    const auto count = std::min(devices, rows);
    const double total = std::accumulate(weights.begin(), weights.begin() + count, 0.0);
    std::vector<std::int64_t> sizes;
    double so_far = 0;
    std::int64_t start = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      so_far += weights[static_cast<std::size_t>(i)];
      const auto ideal = std::llround(static_cast<double>(rows) * (so_far / total));
      const std::int64_t end =
          i == count - 1 ? rows
                         : std::clamp<std::int64_t>(ideal, start + 1, rows - (count - 1 - i));
      sizes.push_back(end - start);
      start = end;
    }
    return sizes;
  }

  // Over `devices` of the devices; there are rows.
  std::vector<std::int64_t> divide(std::int64_t rows, std::int64_t devices) const {
    switch (rule_) {
      case Rule::balanced:
        return even(rows, devices);
      case Rule::weights:
        return in_proportion(rows, devices, weights_);
      default:
        return chunks(rows, devices);
    }
  }

  Rule rule_;
  std::int64_t least_ = 1;
  std::vector<std::int64_t> sizes_;
  std::vector<double> weights_;
};

inline constinit const Split Split::chunk(Split::Rule::chunk);
inline constinit const Split Split::balanced(Split::Rule::balanced);

namespace detail {

// Throws a ValueError unless the sizes are those of one chunk of the rows for each device.
inline void check_chunk_sizes(std::int64_t rows, std::size_t devices,
                              const std::vector<std::int64_t>& sizes) {
  check<ValueError>(sizes.size() == devices,
                    "Expected devices and chunk_sizes to be of same length, but got ", devices,
                    " devices and ", sizes.size(), " chunk sizes");
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    check<ValueError>(size >= 0, "expected non-negative chunk sizes, got ", size);
    total += size;
  }
  check<ValueError>(total == rows, "expected chunk sizes to sum to ", rows,
                    ", the number of rows, but they sum to ", total);
}

}  // namespace detail

// The sizes of the chunks of `rows` rows over `devices` devices.
//
// There may be fewer chunks than devices, and none is empty unless Split::sizes asks for it; but 0
// rows are one chunk of 0 rows for each device, so that the module still runs.
//
// **Torch counterpart.** Tensor.chunk, for Split::chunk; the `chunk_sizes` of
// torch.nn.parallel.comm.scatter, for Split::sizes.
// **Threads and exceptions.** ValueError without devices, for as many sizes or weights as there are
// not devices, and for sizes that are negative or do not sum to the rows.
inline std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                             const Split& split = Split::chunk) {
  check<ValueError>(devices > 0, "Expected at least one device to scatter to");
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
