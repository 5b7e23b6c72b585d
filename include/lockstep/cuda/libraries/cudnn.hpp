// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/libraries/bounded_cache.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>

#include <array>
#include <mutex>
#include <type_traits>
#include <utility>

#include <cudnn.h>

// cuDNN's handles and descriptors.
namespace lockstep::cuda {

// Throws a CudaError unless a call of cuDNN succeeded.
inline void check(cudnnStatus_t status, const char* call, Device device) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw CudaError(
      detail::str(call, " on ", device, ": ", cudnnGetErrorString(status), " (",
                  static_cast<int>(status), ")", detail[0] == '\0' ? "" : "; ", detail.data()),
      static_cast<int>(status));
}

template <class T>
inline constexpr cudnnDataType_t cudnn_type =
    std::is_same_v<T, double> ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;

// Owns one descriptor; empty after a move.
template <class Handle, auto create, auto destroy>
class CudnnDescriptor {
 public:
  // `call` is the name of `create`.
  CudnnDescriptor(const char* call, Device device) { check(create(&handle_), call, device); }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor() {
    if (handle_ != nullptr) (void)destroy(handle_);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using TensorDescriptor = CudnnDescriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                         cudnnDestroyTensorDescriptor>;
using FilterDescriptor = CudnnDescriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor,
                                         cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    CudnnDescriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                    cudnnDestroyConvolutionDescriptor>;

// The library on one device.
class Cudnn {
 public:
  explicit Cudnn(Device device) { check(cudnnCreate(&handle_), "cudnnCreate", device); }

 private:
  friend class CudnnOnStream;
  std::mutex mutex_;  // a handle, its stream included, is one thread's at a time
  cudnnHandle_t handle_ = nullptr;
};

// What one device's library is told of the operations of one kind, by what that depends on.
template <class Key, class Plan>
struct CudnnPlans {
  explicit CudnnPlans(Device) {}
  BoundedCache<Key, Plan> known{512};
};

// Locks the library of a stream's device for the calling thread, has its calls go to the stream,
// and makes the stream's GPU current.
class CudnnOnStream {
 public:
  explicit CudnnOnStream(CudaStream& stream)
      : stream_(stream),
        guard_(device()),
        library_(per_device<Cudnn>(device())),
        lock_(library_.mutex_),
        use_(stream) {
    check(cudnnSetStream(handle(), use_), "cudnnSetStream", device());
  }

  CudaStream& stream() const { return stream_; }
  Device device() const { return stream_.device(); }
  cudnnHandle_t handle() const { return library_.handle_; }

  // The plan for a key, made as Plan(*this, key) if it is not known. Valid until the next call;
  // used, as its descriptors are, while the library is locked.
  template <class Plan, class Key>
  const Plan& plan(const Key& key) const {
    return per_device<CudnnPlans<Key, Plan>>(device()).known.find_or(
        key, [&] { return Plan(*this, key); });
  }

 private:
  CudaStream& stream_;
  const DeviceGuard guard_;
  Cudnn& library_;
  const std::lock_guard<std::mutex> lock_;
  const CudaStream::Use use_;  // of the calls that are made while this lives
};

}  // namespace lockstep::cuda
