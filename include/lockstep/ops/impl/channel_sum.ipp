// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstddef>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor ChannelSum::forward(const Tensor& tensor) {
  shape = tensor.sizes();
  const PackedWide from(tensor);
  const Stream stream = current_stream(tensor.device());
  return compute_floating(tensor.dtype(), name, [&]<class T>(T) {
    Tensor result =
        empty_at(std::exchange(slot, nullptr), {&tensor}, stream, {shape[dim]}, dtype_of<T>);
    launch_call(stream,
                ChannelSumCall<T>{input<T>(*from), output<T>(result, stream), Axis(shape, dim)});
    return result;
  });
}

LOCKSTEP_INLINE Tensor ChannelSum::backward(const Backward&, const Tensor& grad) const {
  Shape aligned = shape;
  for (std::size_t d = 0; d < aligned.size(); ++d) aligned[d] = d == dim ? shape[d] : 1;
  return expand(grad.reshape(aligned), shape);
}

LOCKSTEP_INLINE Tensor channel_sum(const Tensor& tensor, std::size_t dim, const Tensor& slot) {
  return apply(ChannelSum{dim, &slot}, tensor);
}

}  // namespace lockstep::detail
