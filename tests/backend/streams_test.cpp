// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>

#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

namespace lockstep {
namespace streams_test {

using testing::Gate;
using testing::QueuedCompute;
using testing::throws;

TEST(Streams, AreTheSameForTheSameDeviceInEveryThread) {
  EXPECT_EQ(current_stream("cpu:1"), current_stream("cpu:1"));
  EXPECT_EQ(current_stream("cpu:1"), default_stream("cpu:1"));
  EXPECT_EQ(copy_stream("cpu:1"), copy_stream("cpu:1"));
  EXPECT_FALSE(copy_stream("cpu:1") == current_stream("cpu:1"));
  EXPECT_FALSE(current_stream("cpu:2") == current_stream("cpu:1"));
  EXPECT_FALSE(current_stream("cpu") == current_stream("cpu:0"));
  EXPECT_EQ(current_stream("cpu:1").device(), Device("cpu:1"));
  std::optional<Stream> elsewhere;
  std::jthread([&] { elsewhere = current_stream("cpu:1"); }).join();
  EXPECT_EQ(elsewhere, current_stream("cpu:1"));
}

TEST(Streams, OfADeviceThatDoesNotExistAreAnErrorThatSaysWhatThereIs) {
  const Device none(DeviceType::cpu, device_count(DeviceType::cpu));
  const std::string text = "device " + none.str() + " is out of range";
  EXPECT_TRUE(throws<DeviceError>([&] { (void)current_stream(none); }, text, "there are 8 host"));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)default_stream(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)copy_stream(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)pool_stream(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([&] { synchronize(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([&] { (void)memory_stats(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([&] { empty_cache(none); }, text));
  EXPECT_TRUE(throws<DeviceError>([] { (void)current_stream("cuda:0"); }, "no CUDA device",
                                  "built without CUDA"));
}

TEST(StreamGuard, ReplacesTheStreamOfItsDeviceUntilItEnds) {
  const Stream usual = current_stream("cpu:1");
  const Stream other = pool_stream("cpu:1");
  const Stream third = pool_stream("cpu:1");
  {
    const StreamGuard outer(other);
    EXPECT_EQ(current_stream("cpu:1"), other);
    EXPECT_EQ(default_stream("cpu:1"), usual);
    EXPECT_EQ(current_stream("cpu:2"), default_stream("cpu:2"));
    {
      const StreamGuard inner(third);
      const StreamGuard of_another_device(copy_stream("cpu:2"));
      EXPECT_EQ(current_stream("cpu:1"), third);
      EXPECT_EQ(current_stream("cpu:2"), copy_stream("cpu:2"));
    }
    EXPECT_EQ(current_stream("cpu:1"), other);
    EXPECT_EQ(current_stream("cpu:2"), default_stream("cpu:2"));
  }
  EXPECT_EQ(current_stream("cpu:1"), usual);
}

TEST(StreamGuard, IsItsThreadsOwn) {
  const StreamGuard guard(pool_stream("cpu:1"));
  std::optional<Stream> elsewhere;
  std::jthread([&] { elsewhere = current_stream("cpu:1"); }).join();
  EXPECT_EQ(elsewhere, default_stream("cpu:1"));
}

struct Increment {
  View<int> out;
  void operator()(std::size_t i) const { ++out[i]; }
};

TEST(Streams, SynchronizeWaitsForComputeAndCopyStream) {
  const QueuedCompute queued;
  int computed = 0;
  int copied = 0;
  Gate gate;
  gate.hold(default_stream("cpu:1"));
  gate.hold(copy_stream("cpu:1"));
  launch(default_stream("cpu:1"), 1, Increment{{&computed, 1}});
  launch(copy_stream("cpu:1"), 1, Increment{{&copied, 1}});
  gate.open();
  synchronize("cpu:1");
  EXPECT_EQ(computed, 1);
  EXPECT_EQ(copied, 1);
}

TEST(Streams, TellWhatADevicesMemoryIsUsedFor) {
  detail::Backend& backend = detail::backend_of("cpu:7");
  detail::StreamState& stream = backend.default_stream("cpu:7");
  const MemoryStats before = memory_stats("cpu:7");
  void* data = backend.allocate(100, stream);
  EXPECT_EQ(memory_stats("cpu:7").allocated_bytes, before.allocated_bytes + 128);
  backend.deallocate(data, 100, stream, {});
  EXPECT_GE(memory_stats("cpu:7").reserved_bytes, 128U);
  empty_cache("cpu:7");
  EXPECT_EQ(memory_stats("cpu:7").reserved_bytes, memory_stats("cpu:7").allocated_bytes);
}

TEST(Streams, KnowWhoseMemoryAKernelReaches) {
  EXPECT_TRUE(detail::can_access("cpu:1", "cpu:1"));
  EXPECT_TRUE(detail::can_access("cpu:1", "cpu:2"));
  EXPECT_TRUE(detail::can_access("cpu:1", "cpu"));
}

}  // namespace streams_test
}  // namespace lockstep
