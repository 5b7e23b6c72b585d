// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudnn_convolution.hpp>
#include <cudasim/library.hpp>

#include <array>
#include <cstdint>
#include <string>

#include <cudnn.h>

// The simulated cuDNN's algorithms for each of the three passes, and how it says what is wrong.
namespace cudasim::dnn {

inline thread_local std::string last_error;

template <class... Parts>
cudnnStatus_t wrong(cudnnStatus_t status, const Parts&... parts) {
  last_error = text(parts...);
  return misuse(status, parts...);
}

inline constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;

// The heuristics' order: the fastest first.
struct Option {
  int algorithm;
  bool deterministic;
  bool fits;  // the problem
  std::uint64_t workspace;
};
using Options = std::array<Option, 4>;

struct Pass {
  const char* run;
  Options (*options)(const Convolution&);
};

inline std::uint64_t some_workspace(const Convolution& p) { return p.w_size() * p.element() + 12; }

inline constexpr Pass kForward{
    "cudnnConvolutionForward", [](const Convolution& p) {
      return Options{
          {{CUDNN_CONVOLUTION_FWD_ALGO_FFT, true, false, 0},
           {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true, true, kHuge},
           {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, true, some_workspace(p)},
           {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, true, 0}}};
    }};
inline constexpr Pass kBackwardData{
    "cudnnConvolutionBackwardData", [](const Convolution& p) {
      return Options{{{CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, true, 0},
                      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, true, false, 0},
                      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, true, true, kHuge},
                      {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, true, some_workspace(p)}}};
    }};
inline constexpr Pass kBackwardFilter{
    "cudnnConvolutionBackwardFilter", [](const Convolution& p) {
      return Options{{{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, true, 0},
                      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, true, some_workspace(p)},
                      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, true, true, kHuge},
                      {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, true, some_workspace(p)}}};
    }};

// The option for an algorithm that fits the problem, or null and a status.
inline const Option* find(const Options& options, int algorithm, const char* call,
                          cudnnStatus_t& status) {
  for (const Option& option : options) {
    if (option.algorithm == algorithm && option.fits) return &option;
  }
  status = wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": algorithm ", algorithm,
                 " does not fit the problem");
  return nullptr;
}

}  // namespace cudasim::dnn
