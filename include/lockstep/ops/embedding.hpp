// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <optional>

namespace lockstep {

// The rows of weight [embeddings, width] that the indices name, of i64 or i32 and of any shape [*]:
// the result is [*, width].
//
// **Torch counterpart.** torch.nn.functional.embedding, without max_norm and scale_grad_by_freq.
// **Devices and streams.** Both on one device.
// **Backward.** Dense, into the weight; a row's gradients are added in the order of the indices,
// and the row `padding_idx` (counted from the end if negative) gets none. Linear, so that its
// derivative is an embedding again. With `sparse`, which asks for a weight of f32 or f64, it lists
// the gradient of each index with its row instead (tensor/sparse.hpp), costs nothing for rows that
// no index names, and has no derivative: an AutogradError with create_graph. Waits for the indices
// if there is a padding_idx.
// **Threads and exceptions.** An index outside the weight is an IndexError that names it, its
// position in row-major order and the number of rows: at this call, or where the device's stream is
// asynchronous at the next synchronisation with it. A ShapeError, DtypeError or DeviceError names
// what does not fit.
// **Example.** `embedding(tensor<std::int64_t>({3, 0}), weight)` with a weight of [4, 2] is of
// shape [2, 2].
Tensor embedding(const Tensor& indices, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = std::nullopt, bool sparse = false);

// A flag in the place of padding_idx would be the row 0 or 1.
template <std::same_as<bool> Flag>
Tensor embedding(const Tensor& indices, const Tensor& weight, Flag sparse) = delete;

}  // namespace lockstep

namespace lockstep::detail {

// The padding index counted from the front.
std::int64_t wrap_padding(const char* operation, std::optional<std::int64_t> padding,
                          std::int64_t rows);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/embedding.ipp>
#endif
