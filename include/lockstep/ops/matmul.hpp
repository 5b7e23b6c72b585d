// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

namespace detail {

// op(a) · op(b) of matrices, or of equally many in tensors of three dimensions, plus a bias for
// each row if defined. The result is in `slot` if that is given and fits. The caller has checked
// the shapes. Not recorded.
Tensor product(const char* name, const Tensor& a, const Tensor& b, bool trans_a, bool trans_b,
               const Tensor& bias, const Tensor* slot);

// The same without a bias, recorded.
Tensor mm(const Tensor& a, const Tensor& b, bool trans_a = false, bool trans_b = false,
          const Tensor& slot = {});

}  // namespace detail

// The matrix product of two vectors (their inner product), of a matrix and a vector in either
// order, of two matrices, or of batches of matrices; the dimensions before the last two are
// broadcast against each other.
//
// Transposed operands (`b.t()`) and slices of matrices are not copied.
//
// **Torch counterpart.** torch.matmul.
// **Devices and streams.** The operands' current stream, by the BLAS or on a GPU by cuBLASLt (for
// TF32 see cuda/libraries/precision.hpp). Half precision is multiplied in f32, and the result
// rounded once.
// **Backward.** Gradients of both; derivatives of any order.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names both operands; both are
// of one floating-point dtype, unless autocast is on. An Error if the linked BLAS does not allow
// concurrent callers.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/matmul.ipp>
#endif
