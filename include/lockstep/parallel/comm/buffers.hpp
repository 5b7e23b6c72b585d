// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

// How the coalesced collectives put many small tensors into a few flat buffers.
namespace lockstep::comm {

// 10 MiB, torch's default: how much is collected into one buffer.
inline constexpr std::size_t kDefaultBufferSize = std::size_t{10} << 20;

namespace detail {

std::size_t bytes_of(const Tensor& tensor);

// Tensors by their index, in the order in which their groups were opened or closed.
using Groups = std::vector<std::vector<std::size_t>>;

// Room for results as large as several tensors: each a variable of its own, lying together in
// buffers.
struct FlatCopies {
  std::vector<Tensor> parts;
  std::vector<Tensor> buffers;
};

}  // namespace detail

}  // namespace lockstep::comm

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/buffers.ipp>
#endif
