// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/kernels/sum_kernel.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor sum_over(const Tensor& x, const std::bitset<Shape::kMaxDims>& over,
                                const Shape& shape, double divisor) {
  if (is_half_precision(x.dtype())) {
    return cast(sum_over(widened(x), over, shape, divisor), x.dtype());
  }
  std::array<Shape, 2> sizes;  // kept, reduced
  std::array<Shape, 2> strides;
  for (std::size_t d = 0; d < x.sizes().size(); ++d) {
    sizes[over[d]].push_back(x.sizes()[d]);
    strides[over[d]].push_back(x.strides()[d]);
  }
  const Stream stream = current_stream(x.device());
  Tensor result;
  const auto run = [&]<class In, class Out>(In, Out) {
    result = empty_on(stream, shape, dtype_of<Out>);
    if (result.numel() == 0) return;
    launch_call(stream, SumCall<In, Out>{strided_input<In>(x), output<Out>(result, stream),
                                         make_walk<1>(sizes[0], {strides[0]}),
                                         make_walk<1>(sizes[1], {strides[1]}), divisor});
  };
  if (x.dtype() == Dtype::boolean || x.dtype() == Dtype::u8) {  // a bool is a byte of 0 or 1
    run(std::uint8_t{}, std::int64_t{});
  } else {
    dispatch_numeric(x.dtype(), "sum", [&]<class T>(T element) {
      run(element, std::conditional_t<std::is_integral_v<T>, std::int64_t, T>{});
    });
  }
  return result;
}

}  // namespace lockstep::detail
