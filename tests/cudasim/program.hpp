// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cudasim/cudasim.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

// What tests of the simulator write programs with: thin owners of the runtime's handles.
namespace cudasim::test {

inline void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { ok(cudaSetDevice(device)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { ok(cudaSetDevice(before_)); }

 private:
  int before_;
};

class Stream {
 public:
  explicit Stream(int device = 0) : device_(device) {
    const OnDevice guard(device);
    ok(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { ok(cudaStreamDestroy(handle_)); }

  cudaStream_t get() const { return handle_; }
  int device() const { return device_; }
  void synchronize() const { ok(cudaStreamSynchronize(handle_)); }

  void wait(const Stream& other) const {
    cudaEvent_t event = nullptr;
    const OnDevice guard(other.device_);
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaEventRecord(event, other.handle_));
    ok(cudaStreamWaitEvent(handle_, event, 0));
    ok(cudaEventDestroy(event));
  }

  // A kernel that runs `body`.
  void run(const std::string& name, std::vector<MemoryUse> uses, std::function<void()> body) const {
    const OnDevice guard(device_);
    enqueue(handle_, name, std::move(uses), std::move(body));
  }
  void read(const std::string& name, const float* data, std::size_t count) const {
    run(name, {{data, count * sizeof(float), false}}, [] {});
  }
  void write(const std::string& name, float* data, std::size_t count, float value) const {
    run(name, {{data, count * sizeof(float), true}},
        [data, count, value] { std::fill(data, data + count, value); });
  }

 private:
  cudaStream_t handle_ = nullptr;
  int device_;
};

// Floats of a stream's device, allocated and freed in its order.
class Floats {
 public:
  Floats(std::size_t count, const Stream& stream) : count_(count), owner_(&stream) {
    void* data = nullptr;
    ok(cudaMallocAsync(&data, bytes(), stream.get()));
    data_ = static_cast<float*>(data);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() {
    for (const Stream* user : users_) owner_->wait(*user);
    ok(cudaFreeAsync(data_, owner_->get()));
  }

  // The memory is freed after what `stream` does with it.
  void record_stream(const Stream& stream) {
    if (&stream != owner_) users_.push_back(&stream);
  }
  float* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(float); }
  MemoryUse reading() const { return {data_, bytes(), false}; }
  MemoryUse writing() const { return {data_, bytes(), true}; }

 private:
  float* data_ = nullptr;
  std::size_t count_;
  const Stream* owner_;
  std::vector<const Stream*> users_{};
};

class PageLocked {
 public:
  explicit PageLocked(std::size_t count) : count_(count) {
    void* data = nullptr;
    ok(cudaHostAlloc(&data, bytes(), cudaHostAllocDefault));
    data_ = static_cast<float*>(data);
  }
  PageLocked(const PageLocked&) = delete;
  PageLocked& operator=(const PageLocked&) = delete;
  ~PageLocked() { ok(cudaFreeHost(data_)); }

  float* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(float); }

 private:
  float* data_ = nullptr;
  std::size_t count_;
};

// The schedules that a machine with so many streams is tried under.
inline std::vector<Config> schedules(int devices, int streams, unsigned seeds) {
  std::vector<Config> all;
  const auto add = [&](Policy policy, int pick, unsigned seed) {
    Config config;
    config.devices = devices;
    config.policy = policy;
    config.pick = pick;
    config.seed = seed;
    config.patience_ms = 0;
    all.push_back(config);
  };
  add(Policy::eager, -1, 1);
  add(Policy::lazy, -1, 1);
  for (int pick = 0; pick < streams; ++pick) {
    add(Policy::starve, pick, 1);
    add(Policy::favour, pick, 1);
  }
  for (unsigned seed = 1; seed <= seeds; ++seed) add(Policy::random, -1, seed);
  return all;
}

inline std::string name_of(const Config& config) {
  static const char* const names[] = {"eager", "lazy", "starve", "favour", "random"};
  return std::string(names[static_cast<int>(config.policy)]) + " " + std::to_string(config.pick) +
         " seed " + std::to_string(config.seed);
}

inline bool contains(const std::string& text, std::initializer_list<std::string> parts) {
  return std::all_of(parts.begin(), parts.end(), [&text](const std::string& part) {
    return text.find(part) != std::string::npos;
  });
}

// One error, and it has all these parts.
inline ::testing::AssertionResult only_error(const std::vector<std::string>& errors,
                                             std::initializer_list<std::string> parts) {
  if (errors.size() == 1 && contains(errors.front(), parts)) return ::testing::AssertionSuccess();
  auto result = ::testing::AssertionFailure() << errors.size() << " errors";
  for (const std::string& error : errors) result << "\n  " << error;
  return result;
}

// Runs a program on a fresh machine under several schedules, which must all find just this error.
inline void expect_error(const Config& base, const std::function<void()>& program,
                         std::initializer_list<std::string> parts) {
  for (Config config : schedules(base.devices, 4, 5)) {
    config.peer_access = base.peer_access;
    config.fibers = false;
    reset(config);
    program();
    EXPECT_TRUE(only_error(take_errors(), parts)) << name_of(config);
  }
}

inline void expect_error(const std::function<void()>& program,
                         std::initializer_list<std::string> parts) {
  expect_error(Config(), program, parts);
}

inline void expect_clean(const std::function<void()>& program) {
  for (const Config& config : schedules(2, 4, 5)) {
    reset(config);
    program();
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
    EXPECT_EQ(leaks(), std::vector<std::string>()) << name_of(config);
  }
}

}  // namespace cudasim::test
