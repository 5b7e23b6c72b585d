// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
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
inline void fill(const Tensor& tensor, double value) {
  check<ValueError>(tensor.is_contiguous(), "fill: expected a contiguous tensor");
  const Stream stream = current_stream(tensor.device());
  const View<std::byte> bytes = output<std::byte>(tensor, stream);  // its size is in elements
  dispatch_all(tensor.dtype(), [&]<class T>(T) {
    void* const data = bytes.data;
    launch(stream, bytes.size,
           FillKernel<T>{{static_cast<T*>(data), bytes.size}, convert<T>(value)});
  });
}

}  // namespace lockstep::detail
