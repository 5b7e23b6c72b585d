// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

// What the tests of the simulated libraries share.
namespace cudasim::testing {

// A stream of the current device, and arrays there.
class Work {
 public:
  Work() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    for (void* data : allocated_) EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  cudaStream_t stream() const { return stream_; }

  template <class T>
  T* array(const std::vector<T>& values) {
    T* const data = room<T>(values.size());
    copy(data, values.data(), values.size(), cudaMemcpyHostToDevice);
    return data;
  }

  template <class T>
  T* room(std::size_t count) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocAsync(&data, std::max<std::size_t>(count, 1) * sizeof(T), stream_),
              cudaSuccess);
    allocated_.push_back(data);
    return static_cast<T*>(data);
  }

  template <class T>
  std::vector<T> values(const T* data, std::size_t count) {
    std::vector<T> result(count);
    copy(result.data(), data, count, cudaMemcpyDeviceToHost);
    return result;
  }

 private:
  // Through page-locked memory, which asynchronous copies want.
  template <class T>
  void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) {
    if (count == 0) return;
    const std::size_t bytes = count * sizeof(T);
    void* staged = nullptr;
    EXPECT_EQ(cudaMallocHost(&staged, bytes), cudaSuccess);
    auto* const between = static_cast<T*>(staged);
    const bool up = kind == cudaMemcpyHostToDevice;
    if (up) std::copy_n(from, count, between);
    int before = 0;
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&before), cudaSuccess);
    EXPECT_EQ(cudaStreamGetDevice(stream_, &device), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(up ? to : between, up ? between : from, bytes, kind, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaSetDevice(before), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    if (!up) std::copy_n(between, count, to);
    EXPECT_EQ(cudaFreeHost(staged), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> allocated_;
};

// A machine of two devices, on which a test has to say which errors it expects.
class Library : public ::testing::Test {
 protected:
  void SetUp() override {
    reset({});
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  // For what is meant to be without order.
  static void without_fibers() {
    Config config;
    config.fibers = false;
    reset(config);
  }
  void TearDown() override {
    for (const std::string& error : take_errors()) ADD_FAILURE() << error;
  }
};

// True if one error was found since the last call, and it contains `part`.
inline ::testing::AssertionResult reported(const std::string& part) {
  const std::vector<std::string> errors = take_errors();
  if (errors.empty()) return ::testing::AssertionFailure() << "nothing was reported";
  if (errors.front().find(part) == std::string::npos) {
    return ::testing::AssertionFailure() << "reported: " << errors.front();
  }
  return ::testing::AssertionSuccess();
}

// Numbers without a pattern, exact in both types.
template <class T>
std::vector<T> numbers(std::size_t count, unsigned seed) {
  std::vector<T> values(count);
  unsigned state = seed * 2654435761U + 1;
  for (T& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<T>(static_cast<int>(state >> 24) - 128) / T(32);
  }
  return values;
}

}  // namespace cudasim::testing
