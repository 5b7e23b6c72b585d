// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.hpp>
#include <cudasim/cudnn_algorithms.hpp>
#include <cudasim/library.hpp>

#include <thread>

#include <cudnn.h>

// The simulated cuDNN's handles, and what all its descriptors have in common.
struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::thread::id user;  // who has set the stream
};

namespace cudasim::dnn {

// The handle as the calling thread may use it, or null.
inline cudnnContext* usable(cudnnHandle_t handle, const char* call, cudnnStatus_t& status) {
  cudnnContext* const context = alive<cudnnContext>().find(handle);
  if (context == nullptr) {
    status = wrong(CUDNN_STATUS_NOT_INITIALIZED, call, ": the handle was never made");
    return nullptr;
  }
  if (context->device != current_device()) {
    status = wrong(CUDNN_STATUS_EXECUTION_FAILED, call, ": the handle was made for device ",
                   context->device, ", but device ", current_device(), " is current");
    return nullptr;
  }
  if (context->user != std::this_thread::get_id()) {
    status = wrong(CUDNN_STATUS_BAD_PARAM, call,
                   ": another thread has set the handle's stream, and may be using it");
    return nullptr;
  }
  return context;
}

template <class T>
cudnnStatus_t create(T** made, const char* call) {
  if (made == nullptr) return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call, ": null");
  *made = alive<T>().make({});
  return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t destroy(T* handle, const char* call) {
  if (alive<T>().end(handle)) return CUDNN_STATUS_SUCCESS;
  return wrong(CUDNN_STATUS_BAD_PARAM, call, ": never made, or destroyed already");
}

}  // namespace cudasim::dnn
