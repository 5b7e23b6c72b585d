// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/ops/kernels/conv_kernels.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

// Which of cuDNN's algorithms a convolution takes, and the descriptors that go with it.
namespace lockstep::cuda {

// What the plan of a pass depends on.
struct ConvKey {
  cudnnDataType_t type;
  cudnnMathType_t math;
  std::array<int, 16> sizes;  // as in ConvGeometry

  friend auto operator<=>(const ConvKey&, const ConvKey&) = default;
};

// The math that an element type is computed with: f32 rounds to TF32 on request alone.
inline cudnnMathType_t conv_math(cudnnDataType_t type) {
  const bool strict =
      type == CUDNN_DATA_FLOAT && float32_matmul_precision() == MatmulPrecision::highest;
  return strict ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

inline ConvKey conv_key(const detail::ConvGeometry& g, cudnnDataType_t type) {
  ConvKey key{type, conv_math(type), {}};
  const std::int64_t sizes[] = {
      g.batch,          g.in_channels,    g.in_height,     g.in_width,
      g.out_channels,   g.kernel_height,  g.kernel_width,  g.stride_height,
      g.stride_width,   g.padding_height, g.padding_width, g.dilation_height,
      g.dilation_width, g.groups,         g.out_height,    g.out_width};
  static_assert(std::size(sizes) == std::tuple_size_v<decltype(key.sizes)>);
  for (std::size_t i = 0; i < key.sizes.size(); ++i) {
    check<ShapeError>(std::in_range<int>(sizes[i]), "conv2d: a size of ", sizes[i],
                      " is too large for cuDNN, whose sizes are 32-bit integers");
    key.sizes[i] = static_cast<int>(sizes[i]);
  }
  const std::int64_t elements = std::max(g.batch * g.in_channels * g.in_height * g.in_width,
                                         g.batch * g.out_channels * g.out_height * g.out_width);
  check<ShapeError>(std::in_range<int>(elements), "conv2d: images of ", elements,
                    " elements are too many for cuDNN, whose tensors have at most 2147483647: "
                    "convolve parts of the batch");
  return key;
}

// The operands of all three passes: images x, weight w, results y.
struct ConvDescriptors {
  TensorDescriptor x, y;
  FilterDescriptor w;
  ConvolutionDescriptor conv;

  ConvDescriptors(const ConvKey& key, Device device)
      : x("cudnnCreateTensorDescriptor", device),
        y("cudnnCreateTensorDescriptor", device),
        w("cudnnCreateFilterDescriptor", device),
        conv("cudnnCreateConvolutionDescriptor", device) {
    const auto [n, c, h, width, k, kh, kw, sh, sw, ph, pw, dh, dw, groups, oh, ow] = key.sizes;
    check(cudnnSetTensor4dDescriptor(x.get(), CUDNN_TENSOR_NCHW, key.type, n, c, h, width),
          "cudnnSetTensor4dDescriptor", device);
    check(cudnnSetTensor4dDescriptor(y.get(), CUDNN_TENSOR_NCHW, key.type, n, k, oh, ow),
          "cudnnSetTensor4dDescriptor", device);
    check(cudnnSetFilter4dDescriptor(w.get(), key.type, CUDNN_TENSOR_NCHW, k, c / groups, kh, kw),
          "cudnnSetFilter4dDescriptor", device);
    check(cudnnSetConvolution2dDescriptor(conv.get(), ph, pw, sh, sw, dh, dw,
                                          CUDNN_CROSS_CORRELATION, key.type),
          "cudnnSetConvolution2dDescriptor", device);
    check(cudnnSetConvolutionGroupCount(conv.get(), groups), "cudnnSetConvolutionGroupCount",
          device);
    check(cudnnSetConvolutionMathType(conv.get(), key.math), "cudnnSetConvolutionMathType", device);
  }
};

// The three passes' names in the library, and the descriptors of their operands: each pass takes
// the handle, two operands, the convolution and a result.
template <detail::ConvPass pass>
struct LibraryPass;

template <>
struct LibraryPass<detail::ConvPass::forward> {
  static constexpr auto first = &ConvDescriptors::x;
  static constexpr auto second = &ConvDescriptors::w;
  static constexpr auto out = &ConvDescriptors::y;

  using Found = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr int algorithms = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static constexpr auto find = cudnnGetConvolutionForwardAlgorithm_v7;
  static constexpr auto workspace = cudnnGetConvolutionForwardWorkspaceSize;
  static constexpr auto run = cudnnConvolutionForward;
  static constexpr const char* find_name = "cudnnGetConvolutionForwardAlgorithm_v7";
  static constexpr const char* run_name = "cudnnConvolutionForward";
};

template <>
struct LibraryPass<detail::ConvPass::input_grad> {
  static constexpr auto first = &ConvDescriptors::w;
  static constexpr auto second = &ConvDescriptors::y;
  static constexpr auto out = &ConvDescriptors::x;

  using Found = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr int algorithms = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static constexpr auto find = cudnnGetConvolutionBackwardDataAlgorithm_v7;
  static constexpr auto workspace = cudnnGetConvolutionBackwardDataWorkspaceSize;
  static constexpr auto run = cudnnConvolutionBackwardData;
  static constexpr const char* find_name = "cudnnGetConvolutionBackwardDataAlgorithm_v7";
  static constexpr const char* run_name = "cudnnConvolutionBackwardData";
};

template <>
struct LibraryPass<detail::ConvPass::weight_grad> {
  static constexpr auto first = &ConvDescriptors::x;
  static constexpr auto second = &ConvDescriptors::y;
  static constexpr auto out = &ConvDescriptors::w;

  using Found = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr int algorithms = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static constexpr auto find = cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  static constexpr auto workspace = cudnnGetConvolutionBackwardFilterWorkspaceSize;
  static constexpr auto run = cudnnConvolutionBackwardFilter;
  static constexpr const char* find_name = "cudnnGetConvolutionBackwardFilterAlgorithm_v7";
  static constexpr const char* run_name = "cudnnConvolutionBackwardFilter";
};

// How one pass runs for one key.
template <class Pass>
struct ConvPlan {
  ConvDescriptors descriptors;
  decltype(Pass::Found::algo) algorithm{};
  std::size_t workspace = 0;

  ConvPlan(const CudnnOnStream& cudnn, const ConvKey& key) : descriptors(key, cudnn.device()) {
    std::array<typename Pass::Found, 2 * Pass::algorithms> found{};
    int count = 0;
    check(Pass::find(cudnn.handle(), first(), second(), descriptors.conv.get(), out(),
                     static_cast<int>(found.size()), &count, found.data()),
          Pass::find_name, cudnn.device());
    choose(cudnn, std::span(found).first(static_cast<std::size_t>(count)));
  }

  auto first() const { return (descriptors.*Pass::first).get(); }
  auto second() const { return (descriptors.*Pass::second).get(); }
  auto out() const { return (descriptors.*Pass::out).get(); }

 private:
  static constexpr std::size_t kWorkspace = std::size_t{256} << 20;

  // Chooses the fastest algorithm that gives the same bits every time and whose work space is
  // within kWorkspace; if there is none, the one that needs the least. Asks for the work space once
  // more, since the heuristics may have assumed another math type than the one that is set.
  void choose(const CudnnOnStream& cudnn, std::span<const typename Pass::Found> found) {
    bool any = false;
    for (const auto& candidate : found) {
      if (candidate.status != CUDNN_STATUS_SUCCESS) continue;
      if (candidate.determinism != CUDNN_DETERMINISTIC) continue;
      std::size_t bytes = 0;
      if (Pass::workspace(cudnn.handle(), first(), second(), descriptors.conv.get(), out(),
                          candidate.algo, &bytes) != CUDNN_STATUS_SUCCESS) {
        continue;
      }
      if (any && bytes >= workspace) continue;
      any = true;
      algorithm = candidate.algo;
      workspace = bytes;
      if (bytes <= kWorkspace) return;
    }
    if (any) return;
    throw CudaError(
        detail::str(Pass::find_name, " on ", cudnn.device(),
                    ": none of cuDNN's deterministic algorithms takes this convolution"),
        CUDNN_STATUS_NOT_SUPPORTED);
  }
};

}  // namespace lockstep::cuda
