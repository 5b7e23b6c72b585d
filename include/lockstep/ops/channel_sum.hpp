// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep::detail {

// out[c] = the sum of in[o, c, i] over all o and i; summed in double, in an order of its own.
template <class T>
struct ChannelSumCall {
  View<const T> in;
  View<T> out;
  std::size_t outer, channels, inner;

  void operator()() const {
    constexpr std::size_t kBlock = 64;  // channels whose sums stay in the nearest cache
    for (std::size_t first = 0; first < channels; first += kBlock) {
      const std::size_t count = std::min(kBlock, channels - first);
      std::array<double, kBlock> sums{};
      for (std::size_t o = 0; o < outer; ++o) {
        const T* const row = in.data + (o * channels + first) * inner;
        if (inner == 1) {
          for (std::size_t c = 0; c < count; ++c) sums[c] += static_cast<double>(row[c]);
        } else {
          for (std::size_t c = 0; c < count; ++c) sums[c] += sum(row + c * inner, inner);
        }
      }
      for (std::size_t c = 0; c < count; ++c) out[first + c] = static_cast<T>(sums[c]);
    }
  }

  // Several sums side by side, as one chain of additions waits for each of them.
  static double sum(const T* values, std::size_t count) {
    constexpr std::size_t kLanes = 8;
    std::array<double, kLanes> lanes{};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += static_cast<double>(values[i + l]);
    }
    for (std::size_t l = 0; i < count; ++i, ++l) lanes[l] += static_cast<double>(values[i]);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
};

// The gradient of a bias that was added along dimension `dim`: the sum over all others.
struct ChannelSum {
  static constexpr const char* name = "channel_sum";
  std::size_t dim;
  Shape shape = {};

  Tensor forward(const Tensor& tensor) {
    shape = tensor.sizes();
    const Tensor from = packed_wide(tensor);
    const Stream stream = current_stream(tensor.device());
    std::size_t outer = 1;
    std::size_t inner = 1;
    for (std::size_t d = 0; d < dim; ++d) outer *= static_cast<std::size_t>(shape[d]);
    for (std::size_t d = dim + 1; d < shape.size(); ++d)
      inner *= static_cast<std::size_t>(shape[d]);
    return compute_floating(tensor.dtype(), name, [&]<class T>(T) {
      Tensor result = empty_on(stream, {shape[dim]}, dtype_of<T>);
      launch_call(stream, ChannelSumCall<T>{input<T>(from), output<T>(result, stream), outer,
                                            static_cast<std::size_t>(shape[dim]), inner});
      return result;
    });
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    Shape aligned = shape;
    for (std::size_t d = 0; d < aligned.size(); ++d) aligned[d] = d == dim ? shape[d] : 1;
    return expand(grad.reshape(aligned), shape);
  }
};

inline Tensor channel_sum(const Tensor& tensor, std::size_t dim) {
  return apply(ChannelSum{dim}, tensor);
}

}  // namespace lockstep::detail
