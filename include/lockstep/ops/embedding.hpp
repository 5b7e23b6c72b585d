// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <optional>

namespace lockstep {

// Looks up rows of weight [embeddings, width]: indices of i64 or i32 and of any shape [*] give [*,
// width].
//
// **Torch counterpart.** torch.nn.functional.embedding, without max_norm and scale_grad_by_freq.
// **Devices and streams.** Both are on one device.
// **Backward.** A dense gradient of the weight. A row's gradients are added in the order of the
// indices; the row `padding_idx` (counted from the end if negative) gets none. Derivatives of any
// order. With `sparse`, for a weight of f32 or f64, the gradient is sparse instead
// (tensor/sparse.hpp): it lists the gradient of each index with its row, costs nothing for other
// rows, and has no derivative, so create_graph is an AutogradError. It waits for the indices if
// there is a padding_idx.
// **Threads and exceptions.** An index outside the weight is an IndexError that names it, its
// position in row-major order and the number of rows: at this call, or on a device with
// asynchronous streams at the next synchronisation with the stream. A ShapeError, DtypeError or
// DeviceError names what does not match.
// **Example.** `embedding(tensor<std::int64_t>({3, 0}), weight)` with a weight of [4, 2] is of
// shape [2, 2].
Tensor embedding(const Tensor& indices, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = std::nullopt, bool sparse = false);

// Deleted, since the flag would be taken for padding_idx 0 or 1.
template <std::same_as<bool> Flag>
Tensor embedding(const Tensor& indices, const Tensor& weight, Flag sparse) = delete;

}  // namespace lockstep

namespace lockstep::detail {

// The padding index counted from the front; kNoPadding without one.
std::int64_t wrap_padding(const char* operation, std::optional<std::int64_t> padding,
                          std::int64_t rows);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/embedding.ipp>
#endif
