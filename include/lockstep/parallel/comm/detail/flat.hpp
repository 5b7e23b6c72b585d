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

// Where several tensors of one dtype lie in a flat buffer, and how long that is, in elements. Each
// tensor starts at a multiple of kAlignment bytes, as one that is allocated alone does.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;

  FlatLayout(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& members);

  static constexpr std::size_t kAlignment = 64;
};

// Allocates a flat buffer on `stream` for each group. Part i of the result lies in its group's
// buffer, contiguous and with the shape and dtype of tensors[i].
FlatCopies allocate_groups(const Stream& stream, const std::vector<Tensor>& tensors,
                           const Groups& groups);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/flat.ipp>
#endif
