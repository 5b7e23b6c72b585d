// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

// The calling thread's current streams on some devices, drawn at random, which change where the
// text of a test says so (test_copies.cmake). They are ordered as a user has to: one that
// becomes current waits for the one that was.
class DrawnStreams {
 public:
  // Of each device there are so many: the default one and others of the pool.
  static constexpr std::size_t kStreams = 3;
  using Streams = std::array<Stream, kStreams>;

  // The seed in LOCKSTEP_TEST_STREAMS, which switches it on.
  static std::optional<unsigned> seed() {
    const char* const text = std::getenv("LOCKSTEP_TEST_STREAMS");
    if (text == nullptr || *text == '\0') return std::nullopt;
    return static_cast<unsigned>(std::stoul(text));
  }

  // What is done with a device's streams when they are first drawn from: what a user allocates on
  // one of them is used on the others, too.
  static inline std::function<void(const Streams&)> share_memory;

  // Nothing without a seed.
  DrawnStreams(const std::vector<Device>& devices, const std::string& name) {
    if (!share_memory) return;
    random_.seed(*seed() + static_cast<unsigned>(std::hash<std::string>()(name)));
    for (const Device device : devices) {
      if (device.is_host_memory()) continue;
      const Streams& streams = streams_of(device);
      drawn_.push_back(&streams);
      for (std::size_t i = 1; i < kStreams; ++i) streams[0].wait_stream(streams[i]);
      lockstep::detail::StreamOverrides::push(streams[0]);
    }
    outer_ = std::exchange(innermost_, this);
    draw();
  }
  explicit DrawnStreams(Device device) : DrawnStreams({device}, "") {}
  DrawnStreams(const DrawnStreams&) = delete;
  DrawnStreams& operator=(const DrawnStreams&) = delete;
  ~DrawnStreams() {
    if (!share_memory) return;
    innermost_ = outer_;
    for (const Streams* const streams : drawn_) {
      lockstep::detail::StreamOverrides::pop();
      for (const Stream& stream : *streams) {
        try {
          stream.synchronize();
        } catch (const std::exception&) {
          // What a test has left is no matter of the next one.
        }
      }
    }
  }

  // Draws others, in one test so many times.
  static void change() {
    constexpr std::size_t kMost = 1000;
    if (innermost_ != nullptr && innermost_->draws_++ < kMost) innermost_->draw();
  }
  static std::size_t changes() { return changes_; }

 private:
  static const Streams& streams_of(Device device) {
    static std::mutex mutex;
    static std::map<std::string, Streams> all;
    const std::lock_guard lock(mutex);
    const auto found = all.find(device.str());
    if (found != all.end()) return found->second;
    const Streams streams{default_stream(device), pool_stream(device), pool_stream(device)};
    share_memory(streams);
    return all.emplace(device.str(), streams).first->second;
  }

  // This object's streams are the outermost of the thread.
  void draw() {
    std::vector<Stream> current;
    lockstep::detail::StreamOverrides::swap(current);
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      const Stream next = (*drawn_[i])[random_() % kStreams];
      if (next == current[i]) continue;
      next.wait_stream(current[i]);
      current[i] = next;
      ++changes_;
    }
    lockstep::detail::StreamOverrides::swap(current);
  }

  static inline thread_local DrawnStreams* innermost_ = nullptr;
  static inline std::atomic<std::size_t> changes_{0};

  std::vector<const Streams*> drawn_;
  std::mt19937 random_;
  std::size_t draws_ = 0;
  DrawnStreams* outer_ = nullptr;
};

// Draws streams for each test, by its name and the seed.
class DrawStreamsForTests final : public ::testing::EmptyTestEventListener {
 public:
  explicit DrawStreamsForTests(std::vector<Device> devices) : devices_(std::move(devices)) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    drawn_.emplace(devices_, std::string(test.test_suite_name()) + '.' + test.name());
  }
  void OnTestEnd(const ::testing::TestInfo&) override { drawn_.reset(); }
  void OnTestProgramEnd(const ::testing::UnitTest& program) override {
    std::cout << "current streams drawn by seed " << *DrawnStreams::seed() << " in "
              << program.test_to_run_count() << " tests, changed " << DrawnStreams::changes()
              << " times; of the others, "
              << program.total_test_count() - program.test_to_run_count()
              << ", fixed_streams.txt and CMakeLists.txt say why not\n";
  }

  const std::vector<Device> devices_;
  std::optional<DrawnStreams> drawn_;
};

}  // namespace lockstep::testing
