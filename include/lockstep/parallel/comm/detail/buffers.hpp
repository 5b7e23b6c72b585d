// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// How the coalesced collectives put many small tensors into a few flat buffers.
namespace lockstep::comm {

// 10 MiB, torch's default: how much is collected into one buffer.
inline constexpr std::size_t kDefaultBufferSize = std::size_t{10} << 20;

namespace detail {

// Each group lists the indices of its tensors.
using Groups = std::vector<std::vector<std::size_t>>;

// Which tensors share a buffer when they are broadcast: those of one dtype and device in order, a
// buffer being closed once it has reached its limit in bytes.
//
// The arguments are those of compute_bucket_assignment_by_size (ddp/bucket_assignment.hpp), which
// checks them.
//
// **Torch counterpart.** torch::utils::take_tensors.
Groups buffer_groups(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& limits,
                     const std::vector<bool>& alone = {},
                     const std::vector<std::size_t>& numbers = {});

// Which tensors share a buffer when they are reduced: those of one dtype in order, a group being
// closed before it would exceed `size_limit` bytes, so that a larger group has one tensor alone.
// Groups come in the order in which they are closed; those still open at the end, in the order in
// which their dtypes were first met.
//
// **Torch counterpart.** torch._utils._take_tensors.
Groups take_tensors(const std::vector<Tensor>& tensors, std::size_t size_limit);

// Tensors as large as several others, without values, that lie together in flat buffers. Each has a
// version of its own.
struct FlatCopies {
  std::vector<Tensor> parts;
  std::vector<Tensor> buffers;
};

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

}  // namespace detail

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/buffers.ipp>
#endif
