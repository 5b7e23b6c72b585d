// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// Tensors that lie together in flat buffers.
namespace lockstep::comm::detail {

// The places of several tensors of one dtype in a flat buffer, each aligned as a tensor of its own
// would be. In elements.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;

  FlatLayout(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& members);

  static constexpr std::size_t kAlignment = 64;
};

// One buffer on `stream` for each group, in which the group's members get their parts.
FlatCopies allocate_groups(const Stream& stream, const std::vector<Tensor>& tensors,
                           const Groups& groups);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/flat.ipp>
#endif
