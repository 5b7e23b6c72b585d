// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <utility>

namespace lockstep::detail {

// The gradient of a bias added along dimension `dim`: the sum over all other dimensions.
struct ChannelSum {
  static constexpr const char* name = "channel_sum";
  std::size_t dim;
  const Tensor* slot = nullptr;  // for the result
  Shape shape = {};

  Tensor forward(const Tensor& tensor) {
    shape = tensor.sizes();
    const PackedWide from(tensor);
    const Stream stream = current_stream(tensor.device());
    return compute_elements(tensor.dtype(), name, [&]<class T>(T) {
      Tensor result =
          empty_at(std::exchange(slot, nullptr), {&tensor}, stream, {shape[dim]}, dtype_of<T>);
      launch_call(stream,
                  ChannelSumCall<T>{input<T>(*from), output<T>(result, stream), Axis(shape, dim)});
      return result;
    });
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    Shape aligned = shape;
    for (std::size_t d = 0; d < aligned.size(); ++d) aligned[d] = d == dim ? shape[d] : 1;
    return expand(grad.reshape(aligned), shape);
  }
};

inline Tensor channel_sum(const Tensor& tensor, std::size_t dim, const Tensor& slot = {}) {
  return apply(ChannelSum{dim, &slot}, tensor);
}

}  // namespace lockstep::detail
