// SPDX-License-Identifier: Apache-2.0

// cuDNN's softmax, over the simulated runtime, along the channels of a tensor.
#include <cudasim/cudasim.hpp>
#include <cudasim/cudnn_convolution.hpp>
#include <cudasim/cudnn_handle.hpp>
#include <cudasim/library.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cudnn.h>

namespace cudasim::dnn {
namespace {

template <class T>
void softmax(const cudnnTensorStruct& shape, bool log, const T* x, T* y) {
  const auto channels = static_cast<std::size_t>(shape.c);
  const auto pixels = static_cast<std::size_t>(shape.h) * static_cast<std::size_t>(shape.w);
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.n) * pixels; ++row) {
    const std::size_t first = row / pixels * channels * pixels + row % pixels;
    T greatest = x[first];
    for (std::size_t c = 1; c < channels; ++c) {
      greatest = std::max(greatest, x[first + c * pixels]);
    }
    T sum{};
    for (std::size_t c = 0; c < channels; ++c) sum += std::exp(x[first + c * pixels] - greatest);
    for (std::size_t c = 0; c < channels; ++c) {
      const T apart = x[first + c * pixels] - greatest;
      y[first + c * pixels] = log ? apart - std::log(sum) : std::exp(apart) / sum;
    }
  }
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  cudnnTensorDescriptor_t x, const void* x_data, const void* beta,
                                  cudnnTensorDescriptor_t y, void* y_data) {
  constexpr auto call = "cudnnSoftmaxForward";
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  const cudnnContext* const context = usable(handle, call, status);
  if (!context) return status;
  const auto* const in = alive<cudnnTensorStruct>().find(x);
  const auto* const out = alive<cudnnTensorStruct>().find(y);
  if (!in || !out || in->type < 0) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a descriptor was never made, or never set");
  }
  if (in->type != out->type || in->n != out->n || in->c != out->c || in->h != out->h ||
      in->w != out->w) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the result is of another shape or type");
  }
  if (!alpha || !beta || !x_data || !y_data) {
    return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call, ": a null pointer");
  }
  const bool wide = in->type == CUDNN_DATA_DOUBLE;
  const auto is = [wide](const void* factor, int value) {
    return wide ? *static_cast<const double*>(factor) == value
                : *static_cast<const float*>(factor) == static_cast<float>(value);
  };
  if (mode != CUDNN_SOFTMAX_MODE_CHANNEL || algorithm == CUDNN_SOFTMAX_FAST || !is(alpha, 1) ||
      !is(beta, 0)) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": the mode, the algorithm that may overflow, ",
                 "or other factors than 1 and 0 are not simulated");
  }
  const std::size_t element = wide ? sizeof(double) : sizeof(float);
  for (const void* data : {x_data, static_cast<const void*>(y_data)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {
      return wrong(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, call, ": a misaligned pointer");
    }
  }
  const std::size_t bytes = Convolution::size(in->n, in->c, in->h, in->w) * element;
  const bool log = algorithm == CUDNN_SOFTMAX_LOG;
  const bool issued = enqueue(
      context->stream, call, {{x_data, bytes, false}, {y_data, bytes, true}},
      [shape = *in, wide, log, x_data, y_data] {
        if (wide) {
          softmax(shape, log, static_cast<const double*>(x_data), static_cast<double*>(y_data));
        } else {
          softmax(shape, log, static_cast<const float*>(x_data), static_cast<float*>(y_data));
        }
      });
  return issued ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

}  // namespace cudasim::dnn
