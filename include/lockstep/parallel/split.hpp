// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// How the rows of a batch are divided among devices.
//
// **Torch counterpart.** None: torch's DataParallel has Split::chunk alone.
// **Threads and exceptions.** The functions below throw a ValueError for a weight that is no
// positive number, for weights whose sum is infinite, and for less than one row; sizes, and how
// many sizes or weights there are, are looked at when a batch is divided: see split_sizes.
// **Example.** ls::DataParallel model{Net{}, ls::devices(), {.split = ls::Split::weights({2, 1})}};
class Split {
 public:
  // Torch's rule: chunks of ⌈n/k⌉, the last one shorter; trailing devices may get none.
  static const Split chunk;
  // Sizes differ by at most one; no device is idle while there is a row for it.
  static const Split balanced;

  // Exactly these sizes, one for each device. They must sum to the rows of every batch.
  static Split sizes(std::vector<std::int64_t> sizes);
  // In proportion to positive weights, one for each device: for devices that are not equally fast.
  // No device is idle while there is a row for it.
  static Split weights(std::vector<double> weights);

  // The same rule over fewer devices, from the front of the list, so that each of them gets at
  // least so many rows: for layers that need more than one, such as BatchNorm. Split::sizes stays
  // what it is.
  Split at_least(std::int64_t rows) const;

  // The same for a list of devices in which device i has been moved to the front: moves its size or
  // weight, too.
  Split with_first(std::size_t i) const;

  friend bool operator==(const Split&, const Split&) = default;
  friend std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                               const Split& split);

 private:
  enum class Rule { chunk, balanced, sizes, weights };
  explicit constexpr Split(Rule rule) : rule_(rule) {}

  // The sizes for the first `devices` devices; there is at least one row.
  std::vector<std::int64_t> divide(std::int64_t rows, std::int64_t devices) const;

  Rule rule_;
  std::int64_t least_ = 1;
  std::vector<std::int64_t> sizes_;
  std::vector<double> weights_;
};

inline constinit const Split Split::chunk(Split::Rule::chunk);
inline constinit const Split Split::balanced(Split::Rule::balanced);

// The sizes of the chunks of `rows` rows over `devices` devices.
//
// There may be fewer chunks than devices, and none is empty unless Split::sizes asks for it. 0 rows
// give one chunk of 0 rows for each device, so that the module still runs.
//
// **Torch counterpart.** Tensor.chunk, for Split::chunk; the `chunk_sizes` of
// torch.nn.parallel.comm.scatter, for Split::sizes.
// **Threads and exceptions.** Any thread. ValueError without devices, for fewer than 0 rows, unless
// there is one size or weight for each device, and for sizes that are negative or do not sum to the
// rows.
std::vector<std::int64_t> split_sizes(std::int64_t rows, std::size_t devices,
                                      const Split& split = Split::chunk);

namespace detail {

// Throws a ValueError unless there is one size for each device, none is negative, and they sum to
// the rows.
void check_chunk_sizes(std::int64_t rows, std::size_t devices,
                       const std::vector<std::int64_t>& sizes);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/split.ipp>
#endif
