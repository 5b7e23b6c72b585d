// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

namespace detail {

// op(a) · op(b) of matrices, or of equally many in tensors of three dimensions, plus a bias in each
// row where it is defined; at the slot, if there is one and it fits. The caller has checked that
// the shapes fit. Not recorded.
Tensor product(const char* name, const Tensor& a, const Tensor& b, bool trans_a, bool trans_b,
               const Tensor& bias, const Tensor* slot);

// The same without a bias, recorded.
Tensor mm(const Tensor& a, const Tensor& b, bool trans_a = false, bool trans_b = false,
          const Tensor& slot = {});

}  // namespace detail

// The matrix product: of two vectors (their inner product), of a matrix and a vector in either
// order, of two matrices, or of batches of matrices in the dimensions before the last two, which
// are broadcast against each other.
//
// Transposed operands (`b.t()`) and slices of matrices are multiplied where they lie.
//
// **Torch counterpart.** torch.matmul.
// **Devices and streams.** The operands' current stream; on the host one call of the BLAS for each
// matrix, on a GPU one of cuBLASLt for all (see cuda/libraries/precision.hpp for TF32). Half
// precision is multiplied in f32, and the result rounded once.
// **Backward.** Into both; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError that names both operands;
// both are of one floating-point dtype, unless autocast is on. An Error if the linked BLAS is one
// that concurrent callers must not use.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/matmul.ipp>
#endif
