// SPDX-License-Identifier: Apache-2.0
#pragma once

// In front of lockstep's other headers, as that needs.
#include <cudasim/twins.hpp>

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

// Tensors on simulated GPUs, of which no test uses GPU 0: it is every thread's current one at
// first.
namespace lockstep::testing {

template <class... F>
void register_kernels(cuda::Kernels<F...> kernels) {
  cuda::fill_slots(kernels);
  cudasim::twins::register_kernels(kernels);
}

inline const std::vector<Device> kGpus = {"cuda:1", "cuda:2", "cuda:3"};

inline void register_gpus() {
  detail::cuda_backend.store(&cuda::CudaBackend::instance());
  detail::cuda_device_counter.store(&cuda::count_devices);
}

inline Tensor at(const Tensor& tensor, Device device) {
  const Tensor there = empty(tensor.sizes(), {.device = device});
  detail::copy_into(there, tensor);
  return there;
}

inline std::vector<float> values_of(const Tensor& tensor) {
  const Tensor host = at(tensor, Device());
  const auto* first = host.const_data_ptr<float>();
  return std::vector<float>(first, first + host.numel());
}

// A kernel of Functor{in, out} on the device's current stream.
template <class Functor>
Tensor by_kernel(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  Tensor out = empty(tensor.sizes(), tensor.options());
  launch(stream, static_cast<std::size_t>(tensor.numel()),
         Functor{detail::input<float>(tensor), detail::output<float>(out, stream)});
  return out;
}

inline bool has_context_on_gpu_0() {
  const std::vector<int> contexts = cudasim::contexts();
  return std::count(contexts.begin(), contexts.end(), 0) != 0;
}

// Of a thread that has not chosen a GPU: what it does makes no context on GPU 0.
template <class Body>
void on_a_new_thread(const Body& body) {
  std::thread([&body] {
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }).join();
  EXPECT_FALSE(has_context_on_gpu_0());
}

}  // namespace lockstep::testing
