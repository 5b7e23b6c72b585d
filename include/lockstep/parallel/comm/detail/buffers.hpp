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

// 10 MiB, torch's default size of a coalesced collective's buffer.
inline constexpr std::size_t kDefaultBufferSize = std::size_t{10} << 20;

namespace detail {

// Each group lists the indices of its tensors.
using Groups = std::vector<std::vector<std::size_t>>;

// Groups tensors for a broadcast: those of one dtype and device share a buffer, in order, until it
// has reached its limit in bytes.
//
// The arguments are those of compute_bucket_assignment_by_size (ddp/bucket_assignment.hpp), which
// checks them.
//
// **Torch counterpart.** torch::utils::take_tensors.
Groups buffer_groups(const std::vector<Tensor>& tensors, const std::vector<std::size_t>& limits,
                     const std::vector<bool>& alone = {},
                     const std::vector<std::size_t>& numbers = {});

// Groups tensors for a reduction: those of one dtype share a buffer, in order, as long as it stays
// within `size_limit` bytes; only a tensor that is alone may exceed it. Finished groups come first,
// in the order in which they were finished; then the others, in the order in which their dtypes
// were first met.
//
// **Torch counterpart.** torch._utils._take_tensors.
Groups take_tensors(const std::vector<Tensor>& tensors, std::size_t size_limit);

// Uninitialised tensors of given sizes that lie together in flat buffers. Each has its own version.
struct FlatCopies {
  std::vector<Tensor> parts;
  std::vector<Tensor> buffers;
};

// Where several tensors of one dtype lie in a flat buffer, and its length, in elements. Each tensor
// starts at a multiple of kAlignment bytes, as one that is allocated alone does.
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
