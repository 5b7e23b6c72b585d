// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/device_properties.hpp>
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/device/cores.hpp>

#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace host_backend_test {

using testing::Gate;
using testing::QueuedCompute;
using Mode = HostStream::Mode;

HostBackend& backend() { return HostBackend::instance(); }

void deallocate(void* data, std::size_t bytes, StreamState& owner,
                std::vector<StreamState*> used_on = {}) {
  backend().deallocate(data, bytes, owner, {.all = std::move(used_on)});
}

TEST(HostBackend, GivesEachDeviceStreamsOfItsOwn) {
  std::set<StreamState*> streams;
  std::size_t count = 0;
  std::vector<Device> all = host_devices();
  all.emplace_back("cpu");
  for (const Device device : all) {
    for (StreamState* stream : {static_cast<StreamState*>(&backend().default_stream(device)),
                                static_cast<StreamState*>(&backend().copy_stream(device))}) {
      EXPECT_EQ(stream->device(), device);
      EXPECT_TRUE(stream->idle());
      streams.insert(stream);
      ++count;
    }
    EXPECT_EQ(&backend().default_stream(device), &backend().default_stream(device));
    EXPECT_EQ(&backend().copy_stream(device), &backend().copy_stream(device));
  }
  EXPECT_EQ(streams.size(), count);
}

// Host memory, which is no slice of the cores, has all of them.
TEST(HostBackend, CountsMemoryInBytesAndItsPartOfTheCores) {
  const int cores = static_cast<int>(usable_cores());
  EXPECT_EQ(backend().properties("cpu").multi_processor_count, cores);
  const auto devices = static_cast<int>(host_devices().size());
  for (const Device device : host_devices()) {
    const DeviceProperties properties = backend().properties(device);
    EXPECT_GT(properties.total_memory, 1U << 30);
    EXPECT_EQ(properties.multi_processor_count, std::max(1, cores / devices));
  }
}

TEST(HostBackend, ComputesAtOnceAndCopiesInTheBackground) {
  for (const Device device : host_devices()) {
    EXPECT_EQ(backend().default_stream(device).mode(), Mode::immediate);
    EXPECT_EQ(backend().copy_stream(device).mode(), Mode::queued);
  }
  EXPECT_EQ(backend().default_stream("cpu").mode(), Mode::immediate);
  EXPECT_EQ(backend().copy_stream("cpu").mode(), Mode::immediate);
}

TEST(HostBackend, HandsOutPoolStreamsInTurn) {
  std::set<StreamState*> streams;
  StreamState* first = &backend().pool_stream("cpu:1");
  StreamState* next = first;
  do {
    EXPECT_EQ(next->device(), Device("cpu:1"));
    EXPECT_TRUE(streams.insert(next).second);
    next = &backend().pool_stream("cpu:1");
  } while (next != first);
  EXPECT_GT(streams.size(), 1U);
  EXPECT_FALSE(streams.contains(&backend().default_stream("cpu:1")));
}

TEST(HostBackend, ReachesAllHostMemoryAndNoOther) {
  EXPECT_TRUE(backend().can_access("cpu:0", "cpu:1"));
  EXPECT_TRUE(backend().can_access("cpu:0", "cpu"));
  EXPECT_TRUE(backend().can_access("cpu", "cpu:0"));
  EXPECT_FALSE(backend().can_access("cpu:0", "cuda:0"));
}

TEST(HostBackend, KeepsTheMemoryOfDevicesApart) {
  const MemoryStats one = backend().memory_stats("cpu:1");
  const MemoryStats two = backend().memory_stats("cpu:2");
  void* data = backend().allocate(1 << 10, backend().default_stream("cpu:1"));
  EXPECT_EQ(backend().memory_stats("cpu:1").allocations, one.allocations + 1);
  EXPECT_EQ(backend().memory_stats("cpu:1").allocated_bytes, one.allocated_bytes + (1 << 10));
  EXPECT_EQ(backend().memory_stats("cpu:2").allocations, two.allocations);
  deallocate(data, 1 << 10, backend().default_stream("cpu:1"));
  EXPECT_EQ(backend().memory_stats("cpu:1").allocated_bytes, one.allocated_bytes);
  void* elsewhere = backend().allocate(1 << 10, backend().default_stream("cpu:2"));
  EXPECT_NE(elsewhere, data);
  deallocate(elsewhere, 1 << 10, backend().default_stream("cpu:2"));
}

TEST(HostBackend, ReusesMemoryOnlyAfterTheWorkOfItsOwnerOrOnIt) {
  constexpr std::size_t kBytes = 5000;
  Gate gate;
  HostStream& copy = backend().copy_stream("cpu:1");
  HostStream& compute = backend().default_stream("cpu:1");
  void* data = backend().allocate(kBytes, copy);
  gate.hold(Stream(copy));
  deallocate(data, kBytes, copy);
  void* elsewhere = backend().allocate(kBytes, compute);
  EXPECT_NE(elsewhere, data);
  EXPECT_EQ(backend().allocate(kBytes, copy), data);  // in stream order that is fine
  gate.open();
  copy.synchronize();
  deallocate(data, kBytes, copy);
  EXPECT_EQ(backend().allocate(kBytes, compute), data);
  deallocate(data, kBytes, compute);
  deallocate(elsewhere, kBytes, compute);
}

TEST(HostBackend, ReusesMemoryOnlyAfterTheWorkOfEveryStreamThatUsedIt) {
  constexpr std::size_t kBytes = 6000;
  HostStream& owner = backend().default_stream("cpu:1");
  HostStream& one = backend().copy_stream("cpu:2");
  HostStream& two = backend().copy_stream("cpu:3");
  Gate gate_one;
  Gate gate_two;
  gate_one.hold(Stream(one));
  gate_two.hold(Stream(two));
  void* data = backend().allocate(kBytes, owner);
  deallocate(data, kBytes, owner, {&one, &two});
  void* second = backend().allocate(kBytes, owner);
  gate_one.open();
  one.synchronize();
  void* third = backend().allocate(kBytes, owner);
  gate_two.open();
  two.synchronize();
  void* fourth = backend().allocate(kBytes, owner);
  EXPECT_NE(second, data);
  EXPECT_NE(third, data);
  EXPECT_EQ(fourth, data);
  for (void* block : {second, third, fourth}) deallocate(block, kBytes, owner);
}

TEST(HostBackend, ReusesMemoryAtOnceInAStreamThatItselfWaits) {
  constexpr std::size_t kBytes = 7000;
  Gate gate;
  HostStream& copy = backend().copy_stream("cpu:1");
  HostStream& compute = backend().default_stream("cpu:1");
  gate.hold(Stream(copy));
  Stream(compute).wait_stream(Stream(copy));
  void* data = backend().allocate(kBytes, compute);
  deallocate(data, kBytes, compute);
  void* elsewhere = backend().allocate(kBytes, backend().default_stream("cpu:1"));
  EXPECT_EQ(elsewhere, data);
  deallocate(elsewhere, kBytes, compute);
  gate.open();
  compute.synchronize();
}

TEST(HostBackend, CopiesSmallAndLarge) {
  HostStream& stream = backend().copy_stream("cpu:1");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, HostBackend::kSmallCopy,
                                  HostBackend::kSmallCopy + 1, std::size_t{1} << 20}) {
    std::vector<unsigned char> from(bytes + 1);
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
    std::vector<unsigned char> to(bytes + 1, 0);
    backend().copy({to.data(), "cpu:1", from.data(), "cpu", {bytes}, &stream});
    stream.synchronize();
    EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0) << bytes;
    EXPECT_EQ(to[bytes], 0) << bytes;
  }
}

TEST(HostBackend, CopiesSmallOnesBehindWhatTheStreamHas) {
  std::array<int, 4> from{1, 2, 3, 4};
  std::array<int, 4> to{};
  Gate gate;
  HostStream& stream = backend().copy_stream("cpu:1");
  backend().copy({to.data(), "cpu:1", from.data(), "cpu", {sizeof from}, &stream});
  EXPECT_TRUE(stream.idle());  // it was idle, so the copy was made on the way
  EXPECT_EQ(to, from);
  gate.hold(Stream(stream));
  stream.submit([&] { from = {5, 6, 7, 8}; });
  backend().copy({to.data(), "cpu:1", from.data(), "cpu", {sizeof from}, &stream});
  EXPECT_FALSE(stream.idle());
  gate.open();
  stream.synchronize();
  EXPECT_EQ(to, (std::array<int, 4>{5, 6, 7, 8}));
}

TEST(HostBackend, CopiesSmallOnesBehindAWait) {
  std::array<int, 4> from{1, 2, 3, 4};
  std::array<int, 4> to{};
  Gate gate;
  HostStream& producer = backend().copy_stream("cpu:2");
  HostStream& stream = backend().copy_stream("cpu:1");
  gate.hold(Stream(producer));
  producer.submit([&] { from = {5, 6, 7, 8}; });
  Stream(stream).wait_stream(Stream(producer));
  backend().copy({to.data(), "cpu:1", from.data(), "cpu", {sizeof from}, &stream});
  EXPECT_FALSE(stream.idle());
  gate.open();
  stream.synchronize();
  EXPECT_EQ(to, (std::array<int, 4>{5, 6, 7, 8}));
}

TEST(HostBackend, CopiesRectangles) {
  HostStream& stream = backend().copy_stream("cpu:1");
  // Columns 1 and 2 of 3 rows of 4 become a packed 3 by 2, and the reverse.
  const std::array<char, 12> whole{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'};
  std::array<char, 6> packed{};
  backend().copy({packed.data(),
                  "cpu:1",
                  whole.data() + 1,
                  "cpu",
                  {.width = 2, .rows = 3, .dst_pitch = 2, .src_pitch = 4},
                  &stream});
  stream.synchronize();
  EXPECT_EQ(packed, (std::array<char, 6>{'b', 'c', 'f', 'g', 'j', 'k'}));
  std::array<char, 12> back{};
  backend().copy({back.data() + 2,
                  "cpu:1",
                  packed.data(),
                  "cpu",
                  {.width = 2, .rows = 3, .dst_pitch = 4, .src_pitch = 2},
                  &stream});
  backend().copy({back.data(),
                  "cpu:1",
                  packed.data(),
                  "cpu",
                  {.width = 0, .rows = 3, .dst_pitch = 4, .src_pitch = 2},
                  &stream});
  stream.synchronize();
  EXPECT_EQ(back, (std::array<char, 12>{0, 0, 'b', 'c', 0, 0, 'f', 'g', 0, 0, 'j', 'k'}));
}

TEST(HostBackend, CopiesLargeRectanglesInTheBackground) {
  constexpr std::size_t kRows = 100;
  constexpr std::size_t kWidth = 1000;
  std::vector<unsigned char> from(kRows * kWidth);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(0));
  std::vector<unsigned char> to(kRows * kWidth);
  Gate gate;
  HostStream& stream = backend().copy_stream("cpu:1");
  gate.hold(Stream(stream));
  backend().copy(
      {to.data(), "cpu:1", from.data(), "cpu", {kWidth, kRows, kWidth, kWidth}, &stream});
  EXPECT_FALSE(stream.idle());
  gate.open();
  stream.synchronize();
  EXPECT_EQ(to, from);
}

// Two copies of `bytes` each, to cpu:1 and cpu:2.
struct TwoCopies {
  explicit TwoCopies(std::size_t bytes)
      : from(2 * bytes),
        to(2 * bytes),
        one(backend().copy_stream("cpu:1")),
        two(backend().copy_stream("cpu:2")) {
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
    const Pitched shape{bytes};
    orders = {{to.data(), "cpu:1", from.data(), "cpu", shape, &one},
              {to.data() + bytes, "cpu:2", from.data() + bytes, "cpu", shape, &two}};
  }
  std::vector<unsigned char> from, to;
  HostStream& one;
  HostStream& two;
  std::vector<CopyOrder> orders;
};

TEST(HostBackend, SeveralCopiesToIdleStreamsAreMadeOnTheWay) {
  TwoCopies copies(HostBackend::kSmallCopies / 2);
  backend().copy_all(copies.orders);
  EXPECT_TRUE(copies.one.idle());
  EXPECT_TRUE(copies.two.idle());
  EXPECT_EQ(copies.to, copies.from);
}

TEST(HostBackend, SeveralCopiesComeEachBehindWhatItsStreamHas) {
  TwoCopies copies(std::size_t{300} << 10);
  const std::size_t half = copies.to.size() / 2;
  Gate gate;
  gate.hold(Stream(copies.two));
  backend().copy_all(copies.orders);
  EXPECT_FALSE(copies.two.idle());
  copies.one.synchronize();
  EXPECT_EQ(std::memcmp(copies.to.data(), copies.from.data(), half), 0);
  EXPECT_EQ(std::count(copies.to.begin() + static_cast<std::ptrdiff_t>(half), copies.to.end(), 0),
            static_cast<std::ptrdiff_t>(half));
  gate.open();
  copies.two.synchronize();
  EXPECT_EQ(copies.to, copies.from);
}

TEST(HostBackend, SeveralCopiesWaitForWhatAnImmediateStreamWaitsFor) {
  TwoCopies copies(std::size_t{300} << 10);
  HostStream& mine = backend().copy_stream("cpu");
  for (CopyOrder& order : copies.orders) order.stream = &mine;
  copies.one.submit([&] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    std::fill(copies.from.begin(), copies.from.end(), static_cast<unsigned char>(7));
  });
  Stream(mine).wait_stream(Stream(copies.one));
  backend().copy_all(copies.orders);
  EXPECT_EQ(std::count(copies.to.begin(), copies.to.end(), 7),
            static_cast<std::ptrdiff_t>(copies.to.size()));
}

TEST(HostBackend, MayBeSwitchedToQueuedComputeAndBack) {
  HostStream& stream = backend().default_stream("cpu:1");
  std::thread::id thread;
  {
    const QueuedCompute queued;
    Gate gate;
    gate.hold(Stream(stream));
    stream.submit([&] { thread = std::this_thread::get_id(); });
    EXPECT_FALSE(stream.idle());
    gate.open();
    stream.synchronize();
    EXPECT_NE(thread, std::thread::id());
    EXPECT_EQ(backend().default_stream("cpu").mode(), Mode::immediate);
  }
  stream.submit([&] { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
}

}  // namespace host_backend_test
}  // namespace lockstep::detail
