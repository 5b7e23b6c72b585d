// SPDX-License-Identifier: Apache-2.0

// Runs tests on the simulated CUDA runtime: whatever it has found wrong during a test fails that
// test. CUDASIM_POLICY and its siblings (cudasim.hpp) choose the schedule; LOCKSTEP_TEST_STREAMS, a
// seed, has the current streams of the GPUs drawn.
#include <cudasim/cudasim.hpp>

#include <lockstep/backend/backend.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>

#include "support/drawn_streams.hpp"
#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using lockstep::Device;
using lockstep::detail::StreamState;
using lockstep::testing::DrawnStreams;

// The GPUs, with a user who records what he allocates on all streams that he uses by turns.
class MemoryOfDrawnStreams final : public lockstep::detail::Backend {
 public:
  explicit MemoryOfDrawnStreams(Backend& gpus) : gpus_(gpus) {}

  // The streams of a device, of which any may be used by then.
  static inline std::vector<DrawnStreams::Streams> drawn;

  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  lockstep::detail::UsedOn&& used_on) noexcept override {
    const auto recorded = used_on.streams();
    std::vector<StreamState*> all(recorded.begin(), recorded.end());
    for (const DrawnStreams::Streams& streams : drawn) {
      const auto used = [&](const lockstep::Stream& stream) {
        return &stream.state() == &owner ||
               std::count(recorded.begin(), recorded.end(), &stream.state());
      };
      if (std::none_of(streams.begin(), streams.end(), used)) continue;
      for (const lockstep::Stream& stream : streams) {
        if (&stream.state() != &owner) all.push_back(&stream.state());
      }
    }
    gpus_.deallocate(data, bytes, owner, {.all = std::move(all)});
  }

  void* allocate(std::size_t bytes, StreamState& owner) override {
    return gpus_.allocate(bytes, owner);
  }
  lockstep::MemoryStats memory_stats(Device device) override { return gpus_.memory_stats(device); }
  void empty_cache(Device device) override { gpus_.empty_cache(device); }
  lockstep::DeviceProperties properties(Device device) override { return gpus_.properties(device); }
  StreamState& default_stream(Device device) override { return gpus_.default_stream(device); }
  StreamState& copy_stream(Device device) override { return gpus_.copy_stream(device); }
  StreamState& pool_stream(Device device) override { return gpus_.pool_stream(device); }
  bool can_access(Device reader, Device owner) override { return gpus_.can_access(reader, owner); }
  void copy(const lockstep::detail::CopyOrder& order) override { gpus_.copy(order); }
  void copy_all(std::span<const lockstep::detail::CopyOrder> orders) override {
    gpus_.copy_all(orders);
  }
  std::string misplaced(const void* data, Device device) override {
    return gpus_.misplaced(data, device);
  }
  int native_index(Device device) override { return gpus_.native_index(device); }
  std::intptr_t native_handle(StreamState& stream) override { return gpus_.native_handle(stream); }
  void hand_over(StreamState& stream, std::intptr_t consumer) override {
    gpus_.hand_over(stream, consumer);
  }

 private:
  Backend& gpus_;
};

class FailOnErrors final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { cudasim::scope(test.name()); }
  void OnTestEnd(const testing::TestInfo&) override {
    cudasim::record_calls(false);
    cudasim::mend();
    cudasim::set_policy(asked_.policy, asked_.pick, asked_.seed);
    for (const std::string& error : cudasim::take_errors()) ADD_FAILURE() << error;
  }

  const cudasim::Config asked_ = cudasim::config_from_environment();
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lockstep::testing::TimeLimit::install();
  ::setenv("CUDASIM_DEVICES", "8", 0);
  // The simulator knows of freed memory what the runtime is told: a block that the library keeps is
  // not freed to it.
  ::setenv("LOCKSTEP_CUDA_MEMORY_CACHE", "0", 0);
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) lockstep::set_host_device_count(8);
  // In front of the printer, so that failures are printed with the test.
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* printer = listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailOnErrors);
  listeners.Append(printer);
  if (DrawnStreams::seed()) {
    auto& backend = lockstep::detail::cuda_backend;
    backend.store(new MemoryOfDrawnStreams(*backend.load()));
    DrawnStreams::share_memory = [](const DrawnStreams::Streams& streams) {
      MemoryOfDrawnStreams::drawn.push_back(streams);
    };
    std::vector<Device> devices;
    for (int i = 0; i < lockstep::device_count(lockstep::DeviceType::cuda); ++i) {
      devices.emplace_back(lockstep::DeviceType::cuda, i);
    }
    listeners.Append(new lockstep::testing::DrawStreamsForTests(devices));
  }
  return RUN_ALL_TESTS();
}
