// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

LOCKSTEP_INLINE void fill(const Tensor& tensor, double value) {
  check<ValueError>(tensor.is_contiguous(), "fill: expected a contiguous tensor");
  const Stream stream = current_stream(tensor.device());
  dispatch_all(tensor.dtype(), [&]<class T>(T) {
    T element;
    if constexpr (dtype_of<T> == Dtype::f16 || dtype_of<T> == Dtype::bf16) {
      element = T(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
    launch(stream, static_cast<std::size_t>(tensor.numel()),
           FillKernel<T>{output<T>(tensor, stream), element});
  });
}

}  // namespace lockstep::detail
