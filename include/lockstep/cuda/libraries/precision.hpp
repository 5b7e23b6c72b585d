// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <atomic>

namespace lockstep::cuda {

// What a GPU may round the operands of an f32 matrix product to, and of the products within a
// convolution or a recurrent layer. Sums and results are f32 in any case.
enum class MatmulPrecision {
  highest,  // nothing: f32 throughout
  high,     // TF32, which has 10 bits of mantissa
  medium,   // bfloat16, which has 7; convolutions and recurrent layers use TF32
};

}  // namespace lockstep::cuda

namespace lockstep::detail {
inline constinit std::atomic<cuda::MatmulPrecision> cuda_matmul_precision{
    cuda::MatmulPrecision::highest};
}  // namespace lockstep::detail

namespace lockstep::cuda {

// Lets f32 matrix products, convolutions and recurrent layers on GPUs use the faster units of lower
// precision, for the whole process. Nothing but this call chooses them; f64 and host devices never
// change.
//
// **Torch counterpart.** torch.set_float32_matmul_precision. In torch cuDNN has a switch of its
// own, which is on by default; here convolutions and recurrent layers follow this one.
// **Threads and exceptions.** Any thread; what is issued from now on follows it, but for the
// backward of a recurrent layer, which computes as its forward did. A ValueError for a value that
// is not one of the enum's.
// **Example.** `ls::cuda::set_float32_matmul_precision(ls::cuda::MatmulPrecision::high);`
inline void set_float32_matmul_precision(MatmulPrecision precision) {
  check<ValueError>(
      precision == MatmulPrecision::highest || precision == MatmulPrecision::high ||
          precision == MatmulPrecision::medium,
      "set_float32_matmul_precision: expected highest, high or medium, got the value ",
      static_cast<int>(precision));
  detail::cuda_matmul_precision.store(precision, std::memory_order_relaxed);
}

// What set_float32_matmul_precision was last told; `highest` at first.
//
// **Torch counterpart.** torch.get_float32_matmul_precision.
inline MatmulPrecision float32_matmul_precision() {
  return detail::cuda_matmul_precision.load(std::memory_order_relaxed);
}

}  // namespace lockstep::cuda
