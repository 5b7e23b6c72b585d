// SPDX-License-Identifier: Apache-2.0

// The functions of cuDNN that lockstep calls, over the simulated runtime. A convolution checks its
// arguments when it is issued, declares what it reads and writes, and computes plainly when its
// turn comes. What lockstep does not use is reported, algorithms that give other bits every time
// among it.
//
// The heuristics put first what lockstep must not take: algorithms that are not deterministic,
// that do not fit the problem, and that need more work space than a program should give them.
#include <cudasim/cudasim.hpp>
#include <cudasim/cudnn_algorithms.hpp>
#include <cudasim/cudnn_convolution.hpp>
#include <cudasim/cudnn_handle.hpp>
#include <cudasim/library.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace cudasim::dnn {
namespace {

bool load(Convolution& p, const char* call, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
          cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y) {
  const auto* found_x = alive<cudnnTensorStruct>().find(x);
  const auto* found_y = alive<cudnnTensorStruct>().find(y);
  const auto* found_w = alive<cudnnFilterStruct>().find(w);
  const auto* found_conv = alive<cudnnConvolutionStruct>().find(conv);
  if (!found_x || !found_y || !found_w || !found_conv) {
    (void)wrong(CUDNN_STATUS_BAD_PARAM, call, ": a descriptor was never made");
    return false;
  }
  p = {*found_x, *found_y, *found_w, *found_conv};
  return true;
}

template <class Found>
cudnnStatus_t heuristics(const char* call, const Pass& pass, cudnnHandle_t handle,
                         cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                         cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y,
                         int requested, int* returned, Found* found) {
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  Convolution p;
  if (!load(p, call, x, w, conv, y)) return status;
  if (requested < 1 || returned == nullptr || found == nullptr) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": no room for a result");
  }
  if (const auto fit = p.check(call); fit != CUDNN_STATUS_SUCCESS) return fit;
  const Options options = pass.options(p);
  *returned = std::min(requested, static_cast<int>(options.size()));
  for (int i = 0; i < *returned; ++i) {
    const Option& option = options[static_cast<std::size_t>(i)];
    found[i] = {};
    found[i].algo = static_cast<decltype(Found::algo)>(option.algorithm);
    found[i].status = option.fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    found[i].time = -1;
    found[i].memory = static_cast<std::size_t>(option.workspace);
    found[i].determinism = option.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    found[i].mathType = static_cast<cudnnMathType_t>(p.conv.math);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_size(const char* call, const Pass& pass, cudnnHandle_t handle,
                             cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                             cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y,
                             int algorithm, std::size_t* bytes) {
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  Convolution p;
  if (!load(p, call, x, w, conv, y)) return status;
  if (bytes == nullptr) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": no room for a result");
  if (const auto fit = p.check(call); fit != CUDNN_STATUS_SUCCESS) return fit;
  const Options options = pass.options(p);
  const Option* option = find(options, algorithm, call, status);
  if (!option) return status;
  *bytes = static_cast<std::size_t>(option->workspace);
  return CUDNN_STATUS_SUCCESS;
}

// An operand in memory, of a number of elements.
struct Operand {
  const void* data;
  std::size_t size;
};

// `kernel(p, alpha, first, second, beta, out)` as an operation of the handle's stream.
template <class T, class Kernel>
bool issue(cudaStream_t stream, const char* name, const Convolution& p, const void* alpha,
           Operand first, Operand second, const void* beta, Operand out, void* workspace,
           std::size_t bytes, const Kernel& kernel) {
  const T scale = *static_cast<const T*>(alpha);
  const T keep = *static_cast<const T*>(beta);
  std::vector<MemoryUse> uses = {{first.data, first.size * sizeof(T), false},
                                 {second.data, second.size * sizeof(T), false},
                                 {out.data, out.size * sizeof(T), true}};
  if (bytes > 0) uses.push_back({workspace, bytes, true});
  return enqueue(stream, name, std::move(uses), [=] {
    if (bytes > 0) std::memset(workspace, 0xa5, bytes);
    kernel(p, scale, static_cast<const T*>(first.data), static_cast<const T*>(second.data), keep,
           static_cast<T*>(const_cast<void*>(out.data)));
  });
}

template <class Kernel>
cudnnStatus_t run(const Pass& pass, cudnnHandle_t handle, const Convolution& p, int algorithm,
                  const void* alpha, Operand first, Operand second, const void* beta, Operand out,
                  void* workspace, std::size_t bytes, const Kernel& kernel) {
  const char* const call = pass.run;
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  const cudnnContext* const context = usable(handle, call, status);
  if (!context) return status;
  if (const auto fit = p.check(call); fit != CUDNN_STATUS_SUCCESS) return fit;
  const Options options = pass.options(p);
  const Option* const option = find(options, algorithm, call, status);
  if (!option) return status;
  if (!option->deterministic) {
    report(text(call, ": algorithm ", algorithm, " gives other bits every time"));
  }
  if (!alpha || !beta || !first.data || !second.data || !out.data) {
    return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call, ": a null pointer");
  }
  if (bytes < option->workspace || (option->workspace > 0 && workspace == nullptr)) {
    return wrong(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, call, ": a work space of ", bytes,
                 " bytes where the algorithm needs ", option->workspace);
  }
  for (const void* data : {first.data, second.data, out.data}) {
    if (reinterpret_cast<std::uintptr_t>(data) % p.element() != 0) {
      return wrong(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, call, ": a misaligned pointer");
    }
  }
  const auto issue_as =
      p.x.type == CUDNN_DATA_DOUBLE ? &issue<double, Kernel> : &issue<float, Kernel>;
  const bool issued =
      issue_as(context->stream, call, p, alpha, first, second, beta, out, workspace, bytes, kernel);
  return issued ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

template <class T>
cudnnStatus_t set(T* descriptor, const char* call, cudnnDataType_t type, cudnnTensorFormat_t format,
                  const T& value, std::span<const int> sizes) {
  T* const found = alive<T>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  if (format != CUDNN_TENSOR_NCHW || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_DOUBLE)) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": the format ", static_cast<int>(format),
                 " or the type ", static_cast<int>(type), " is not simulated");
  }
  std::uint64_t elements = 1;
  for (const int size : sizes) {
    if (size < 1) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a size of ", size);
    elements *= static_cast<std::uint64_t>(size);
    if (elements >= std::uint64_t{1} << 31) {
      return CUDNN_STATUS_NOT_SUPPORTED;  // as the library: nobody's mistake
    }
  }
  *found = value;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate: null");
  *handle = alive<cudnnContext>().make({current_device(), nullptr, {}});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle, "cudnnDestroy"); }

// The handle belongs to the calling thread until another one sets a stream.
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  cudnnContext* const context = alive<cudnnContext>().find(handle);
  if (context == nullptr) {
    return wrong(CUDNN_STATUS_NOT_INITIALIZED, "cudnnSetStream: the handle was never made");
  }
  context->stream = stream;
  context->user = std::this_thread::get_id();
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  (void)usable(handle, "cudnnSetStream", status);
  return status;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS of the simulation";
  }
}

void cudnnGetLastErrorString(char* message, std::size_t size) {
  if (size == 0) return;
  const std::size_t length = std::min(size - 1, last_error.size());
  std::memcpy(message, last_error.data(), length);
  message[length] = '\0';
  last_error.clear();
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) {
  return create(made, "cudnnCreateTensorDescriptor");
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyTensorDescriptor");
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w) {
  return set(descriptor, "cudnnSetTensor4dDescriptor", type, format,
             cudnnTensorStruct{type, n, c, h, w}, std::array{n, c, h, w});
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* made) {
  return create(made, "cudnnCreateFilterDescriptor");
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyFilterDescriptor");
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return set(descriptor, "cudnnSetFilter4dDescriptor", type, format,
             cudnnFilterStruct{type, k, c, h, w}, std::array{k, c, h, w});
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* made) {
  return create(made, "cudnnCreateConvolutionDescriptor");
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyConvolutionDescriptor");
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  constexpr auto call = "cudnnSetConvolution2dDescriptor";
  auto* const found = alive<cudnnConvolutionStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a negative padding, or no stride or dilation");
  }
  if (mode != CUDNN_CROSS_CORRELATION) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": the mode is not simulated");
  }
  *found = {type, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  constexpr auto call = "cudnnSetConvolutionGroupCount";
  auto* const found = alive<cudnnConvolutionStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  if (groups < 1) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a group count of ", groups);
  found->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t math) {
  constexpr auto call = "cudnnSetConvolutionMathType";
  auto* const found = alive<cudnnConvolutionStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  found->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y, int requested, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* found) {
  return heuristics("cudnnGetConvolutionForwardAlgorithm_v7", kForward, handle, x, w, conv, y,
                    requested, returned, found);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
  return workspace_size("cudnnGetConvolutionForwardWorkspaceSize", kForward, handle, x, w, conv, y,
                        algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x, const void* x_data,
                                      cudnnFilterDescriptor_t w, const void* w_data,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t bytes, const void* beta,
                                      cudnnTensorDescriptor_t y, void* y_data) {
  Convolution p;
  if (!load(p, kForward.run, x, w, conv, y)) return CUDNN_STATUS_BAD_PARAM;
  return run(kForward, handle, p, algorithm, alpha, {x_data, p.x_size()}, {w_data, p.w_size()},
             beta, {y_data, p.y_size()}, workspace, bytes,
             [](auto&&... arguments) { forward(arguments...); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t x, int requested, int* returned,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return heuristics("cudnnGetConvolutionBackwardDataAlgorithm_v7", kBackwardData, handle, x, w,
                    conv, y, requested, returned, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t x,
    cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
  return workspace_size("cudnnGetConvolutionBackwardDataWorkspaceSize", kBackwardData, handle, x, w,
                        conv, y, algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t y, const void* y_data,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t x, void* x_data) {
  Convolution p;
  if (!load(p, kBackwardData.run, x, w, conv, y)) return CUDNN_STATUS_BAD_PARAM;
  return run(kBackwardData, handle, p, algorithm, alpha, {w_data, p.w_size()}, {y_data, p.y_size()},
             beta, {x_data, p.x_size()}, workspace, bytes,
             [](auto&&... arguments) { backward_data(arguments...); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t w, int requested, int* returned,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return heuristics("cudnnGetConvolutionBackwardFilterAlgorithm_v7", kBackwardFilter, handle, x, w,
                    conv, y, requested, returned, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t w,
    cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  return workspace_size("cudnnGetConvolutionBackwardFilterWorkspaceSize", kBackwardFilter, handle,
                        x, w, conv, y, algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x, const void* x_data,
                                             cudnnTensorDescriptor_t y, const void* y_data,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, std::size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t w, void* w_data) {
  Convolution p;
  if (!load(p, kBackwardFilter.run, x, w, conv, y)) return CUDNN_STATUS_BAD_PARAM;
  return run(kBackwardFilter, handle, p, algorithm, alpha, {x_data, p.x_size()},
             {y_data, p.y_size()}, beta, {w_data, p.w_size()}, workspace, bytes,
             [](auto&&... arguments) { backward_filter(arguments...); });
}

}  // extern "C"

}  // namespace cudasim::dnn
