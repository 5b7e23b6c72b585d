// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/softmax_rows.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::cuda {

// Softmax by cuDNN, as that of the channels of images of `inner` pixels. A kernel serves images
// that are too large for it.
template <class T, bool Log>
struct CudaCall<detail::SoftmaxCall<T, Log>> {
  using kernels = Kernels<SoftmaxRows<T>>;
  static void run(detail::StreamState& stream, const detail::SoftmaxCall<T, Log>& call) {
    constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
    if (call.in.size == 0) return;
    const SoftmaxParts parts(call.axis, kMost);
    if (!parts.possible()) {
      const SoftmaxRows<T> rows{call.in, call.out, call.axis, Log, call.axis.inner >= kLanes};
      return launch_kernel(stream, call.axis.outer * call.axis.inner, rows);
    }
    auto& on = static_cast<CudaStream&>(stream);
    const CudnnOnStream cudnn(on);
    const TensorDescriptor shape("cudnnCreateTensorDescriptor", on.device());
    parts.for_each([&](std::size_t first, std::size_t outer) {
      check(cudnnSetTensor4dDescriptor(shape.get(), CUDNN_TENSOR_NCHW, cudnn_type<T>,
                                       static_cast<int>(outer), static_cast<int>(call.axis.count),
                                       static_cast<int>(call.axis.inner), 1),
            "cudnnSetTensor4dDescriptor", on.device());
      const T alpha = 1;
      const T beta = 0;
      check(cudnnSoftmaxForward(cudnn.handle(), Log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE,
                                CUDNN_SOFTMAX_MODE_CHANNEL, &alpha, shape.get(),
                                call.in.data + first, &beta, shape.get(), call.out.data + first),
            "cudnnSoftmaxForward", on.device());
    });
  }
};

template <class T, bool Log>
struct CudaCall<detail::SoftmaxGradCall<T, Log>> {
  using kernels = Kernels<SoftmaxGradRows<T, Log>>;
  static void run(detail::StreamState& stream, const detail::SoftmaxGradCall<T, Log>& call) {
    if (call.y.size == 0) return;
    launch_kernel(stream, call.axis.outer * call.axis.inner,
                  SoftmaxGradRows<T, Log>{call, call.axis.inner >= kLanes});
  }
};

template <class T>
using SoftmaxCallsOf = Kernels<detail::SoftmaxCall<T, false>, detail::SoftmaxCall<T, true>,
                               detail::SoftmaxGradCall<T, false>, detail::SoftmaxGradCall<T, true>>;

using SoftmaxCalls = Join<SoftmaxCallsOf<float>, SoftmaxCallsOf<double>>::type;

}  // namespace lockstep::cuda
