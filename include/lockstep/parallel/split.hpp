// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// How the rows of a batch are divided among devices.
//
// **Torch counterpart.** None: torch's DataParallel has only Split::chunk.
// **Threads and exceptions.** `weights` throws a ValueError unless every weight is positive and
// their sum finite, at_least for less than one row. split_sizes checks sizes, and the number of
// sizes or weights, when it divides a batch.
// **Example.** ls::DataParallel model{Net{}, ls::devices(), {.split = ls::Split::weights({2, 1})}};
class Split {
 public:
  // Torch's rule: chunks of ⌈n/k⌉ rows, the last one shorter. Trailing devices may get none.
  static const Split chunk;
  // Sizes differ by at most one; no device is idle while there is a row for it.
  static const Split balanced;

  // Exactly these sizes, one per device. They must sum to the rows of every batch.
  static Split sizes(std::vector<std::int64_t> sizes);
  // In proportion to positive weights, one per device, for devices of different speed. No device is
  // idle while there is a row for it.
  static Split weights(std::vector<double> weights);

  // The same rule over as many devices, from the front of the list, as get at least `rows` rows
  // each: for layers that need several, such as BatchNorm. Does not change Split::sizes.
  Split at_least(std::int64_t rows) const;

  // The same rule for the list with device i moved to the front, along with its size or weight.
  Split with_first(std::size_t i) const;

  friend bool operator==(const Split&, const Split&) = default;
  friend std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                               const Split& split);

 private:
  enum class Rule { chunk, balanced, sizes, weights };
  explicit constexpr Split(Rule rule) : rule_(rule) {}

  // The sizes for the first `devices` devices, for at least one row.
  std::vector<std::int64_t> divide(std::int64_t rows, std::int64_t devices) const;

  Rule rule_;
  std::int64_t least_ = 1;
  std::vector<std::int64_t> sizes_;
  std::vector<double> weights_;
};

inline constinit const Split Split::chunk(Split::Rule::chunk);
inline constinit const Split Split::balanced(Split::Rule::balanced);

// The sizes of the chunks that `rows` rows make over `devices` devices.
//
// There may be fewer chunks than devices. No chunk is empty unless Split::sizes asks for it, but 0
// rows make an empty chunk for each device, so that the module still runs.
//
// **Torch counterpart.** Tensor.chunk, for Split::chunk; the `chunk_sizes` of
// torch.nn.parallel.comm.scatter, for Split::sizes.
// **Threads and exceptions.** Any thread. ValueError for no devices, for negative rows, unless
// there is one size or weight per device, and for sizes that are negative or do not sum to the
// rows.
std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                      const Split& split = Split::chunk);

namespace detail {

// Throws a ValueError unless there is one size per device, none is negative, and they sum to the
// rows.
void check_chunk_sizes(std::int64_t rows, std::size_t devices,
                       const std::vector<std::int64_t>& sizes);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/split.ipp>
#endif
