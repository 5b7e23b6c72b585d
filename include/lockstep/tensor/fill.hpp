// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

template <class T>
struct FillKernel {
  View<T> out;
  T value;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = value; }
};

// Sets every element of a contiguous tensor to `value`, on its device's current stream.
inline void fill(const Tensor& tensor, Scalar value, const char* operation = "fill") {
  check<ValueError>(tensor.is_contiguous(), operation, ": expected a contiguous tensor");
  const Stream stream = current_stream(tensor.device());
  dispatch_all(tensor.dtype(), [&]<class T>(T) {
    const T element = element_of<T>(operation, value);
    const View<T> elements = output<T>(tensor, stream);
    launch(stream, elements.size, FillKernel<T>{elements, element});
  });
}

}  // namespace lockstep::detail
