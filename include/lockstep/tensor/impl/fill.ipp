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
  const View<std::byte> bytes = output<std::byte>(tensor, stream);  // its size is in elements
  dispatch_all(tensor.dtype(), [&]<class T>(T) {
    T element;
    if constexpr (dtype_of<T> == Dtype::f16 || dtype_of<T> == Dtype::bf16) {
      element = T(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
    void* const data = bytes.data;
    launch(stream, bytes.size, FillKernel<T>{{static_cast<T*>(data), bytes.size}, element});
  });
}

}  // namespace lockstep::detail
