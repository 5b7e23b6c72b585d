// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/variable.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/storage.hpp>

#include "support/gate.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

// When a storage may be reused or overwritten, looked at while a gate holds the work that uses it.
namespace lockstep::detail {
namespace storage_order_test {

using testing::Gate;
using testing::kAddressSanitizer;
using testing::QueuedCompute;

constexpr std::size_t kBytes = 9000;

TEST(StorageOrder, BelongsToTheDeviceOfItsStream) {
  const MemoryStats before = memory_stats("cpu:1");
  {
    const Storage storage(kBytes, pool_stream("cpu:1"));
    EXPECT_EQ(storage.bytes(), kBytes);
    EXPECT_EQ(storage.device(), Device("cpu:1"));
    EXPECT_GE(memory_stats("cpu:1").allocated_bytes, before.allocated_bytes + kBytes);
  }
  EXPECT_EQ(memory_stats("cpu:1").allocated_bytes, before.allocated_bytes);
}

TEST(StorageOrder, HasAnAddressEvenWithoutBytes) {
  const Storage a(0, current_stream("cpu:1"));
  const Storage b(0, current_stream("cpu:1"));
  EXPECT_NE(a.data(), nullptr);
  EXPECT_NE(a.data(), b.data());
}

TEST(StorageOrder, ReusesMemoryOnlyAfterItsOwnersWork) {
  Gate gate;
  const Stream copy = copy_stream("cpu:1");
  const Stream compute = current_stream("cpu:1");
  std::optional<Storage> storage(std::in_place, kBytes, copy);
  const void* const data = storage->data();
  gate.hold(copy);
  storage.reset();
  const Storage elsewhere(kBytes, compute);
  EXPECT_NE(elsewhere.data(), data);
  gate.open();
  copy.synchronize();
  const Storage reused(kBytes, compute);
  EXPECT_EQ(reused.data(), data);
}

TEST(StorageOrder, CountsWorkIssuedBeforeAndAfterItsStreamWasRecorded) {
  for (const bool before : {true, false}) {
    Gate gate;
    const Stream reader = copy_stream("cpu:2");
    const Stream compute = current_stream("cpu:1");
    std::optional<Storage> storage(std::in_place, kBytes, compute);
    const void* const data = storage->data();
    if (before) gate.hold(reader);
    storage->record_stream(reader);
    if (!before) gate.hold(reader);
    storage.reset();
    const Storage elsewhere(kBytes, compute);
    EXPECT_NE(elsewhere.data(), data);
    gate.open();
    reader.synchronize();
    const Storage reused(kBytes, compute);
    EXPECT_EQ(reused.data(), data);
  }
}

TEST(StorageOrder, LetsAWriterWaitForEveryReader) {
  Gate gate_one;
  Gate gate_two;
  const Stream one = copy_stream("cpu:1");
  const Stream two = copy_stream("cpu:2");
  const Stream writer = current_stream("cpu");
  Storage storage(kBytes, writer);
  storage.order_write(writer);
  EXPECT_TRUE(writer.query());
  storage.record_stream(one);
  storage.record_stream(two);
  storage.record_stream(two);
  gate_one.hold(one);
  gate_two.hold(two);
  storage.order_write(writer);
  EXPECT_FALSE(writer.query());
  gate_one.open();
  one.synchronize();
  EXPECT_FALSE(writer.query());
  gate_two.open();
  two.synchronize();
  EXPECT_TRUE(writer.query());
}

TEST(StorageOrder, WaitsForTheFirstReaderOfSeveral) {
  Gate gate;
  const Stream first = copy_stream("cpu:1");
  const Stream second = copy_stream("cpu:2");
  const Stream writer = current_stream("cpu");
  std::optional<Storage> storage(std::in_place, kBytes, writer);
  const void* const data = storage->data();
  storage->record_stream(first);
  storage->record_stream(second);
  gate.hold(first);
  storage->order_write(writer);
  EXPECT_FALSE(writer.query());
  storage.reset();
  const Storage elsewhere(kBytes, second);
  EXPECT_NE(elsewhere.data(), data);
  gate.open();
  first.synchronize();
  EXPECT_TRUE(writer.query());
}

TEST(StorageOrder, LetsNoStreamWaitForItselfNorForWhomNobodyRecorded) {
  const QueuedCompute queued;
  Gate gate;
  const Stream owner = current_stream("cpu:1");
  const Stream copy = copy_stream("cpu:1");
  const Stream idle = copy_stream("cpu:2");
  Storage storage(kBytes, owner);
  gate.hold(owner);
  storage.order_write(copy);
  EXPECT_TRUE(copy.query());
  storage.record_stream(copy);
  storage.order_write(copy);
  storage.record_stream(idle);
  storage.order_write(copy);
  EXPECT_TRUE(copy.query());
}

TEST(StorageOrder, AWriteWaitsForTheOwnerWhereItReadsTheBlock) {
  const QueuedCompute queued;
  Gate gate;
  const Stream owner = current_stream("cpu:1");
  const Stream writer = copy_stream("cpu:1");
  Storage storage(kBytes, owner);
  gate.hold(owner);
  storage.record_stream(owner);
  storage.order_write(writer);
  EXPECT_FALSE(writer.query());
  gate.open();
  writer.synchronize();
}

TEST(StorageOrder, MayBeAskedForByManyThreads) {
  Gate gate;
  const Stream writer = current_stream("cpu");
  Storage storage(kBytes, writer);
  {
    std::vector<std::jthread> threads;
    for (const Device device : host_devices()) {
      threads.emplace_back([&storage, device] {
        for (int i = 0; i < 100; ++i) {
          storage.record_stream(copy_stream(device));
          storage.record_stream(default_stream(device));
          storage.order_write(copy_stream(device));
        }
      });
    }
  }
  gate.hold(copy_stream("cpu:6"));
  storage.order_write(writer);
  EXPECT_FALSE(writer.query());
  gate.open();
  writer.synchronize();
}

TEST(StorageOrder, LivesAsLongAsAnyViewOfIt) {
  const MemoryStats before = memory_stats("cpu:1");
  Tensor tensor = full({4}, 1, {.device = "cpu:1"});
  Tensor view = make_view(tensor, {2}, {1}, 2);
  tensor = {};
  EXPECT_GT(memory_stats("cpu:1").allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(view.const_data_ptr<float>()[1], 1);
  view = {};
  EXPECT_EQ(memory_stats("cpu:1").allocated_bytes, before.allocated_bytes);
}

// A copy to host memory is made on the other device's stream, so the host's own one must have had
// its turn with the memory that is written.
TEST(StorageOrder, LetsACopyToTheHostWaitForTheHostsOwnStream) {
  const QueuedCompute queued;
  const Tensor source = full({4}, 3, {.device = "cpu:1"});
  const Stream writer = copy_stream("cpu:2");
  std::jthread copier;
  std::atomic<bool> copied{false};
  Gate gate;
  const Tensor target = full({4}, 1);
  gate.hold(writer);
  current_stream("cpu").wait_stream(writer);
  default_stream("cpu:1").synchronize();
  copier = std::jthread([&] {
    copy_into(target, source);
    copied = true;
  });
  while (default_stream("cpu:1").query() && !copied) std::this_thread::yield();
  EXPECT_FALSE(copied);
  gate.open();
  copier.join();
  EXPECT_EQ(target.const_data_ptr<float>()[3], 3);
}

TEST(StorageOrderDeathTest, AddressSanitizerCatchesUseAfterTheTensorsDeath) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs a build with AddressSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Tensor tensor = full({4}, 1);
  const volatile float* data = tensor.const_data_ptr<float>();
  EXPECT_EQ(data[3], 1);
  tensor = {};
  EXPECT_DEATH((void)data[3], "use-after-poison");
}

}  // namespace storage_order_test
}  // namespace lockstep::detail
