// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/from_blob.hpp>

#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/storage.hpp>

#include "support/expect_error.hpp"
#include "support/forked.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

// Memory of the program's own as tensors: that it is shared, and when and where it is given back.
namespace lockstep {
namespace from_blob_test {

using testing::Gate;
using testing::QueuedCompute;
using testing::throws;

// Memory that counts how often it was given back, and knows where.
class Blob {
 public:
  BlobOptions options(Device device = {}) {
    return {.device = device, .deleter = [this](void* data) {
              EXPECT_EQ(data, values.data());
              thread = std::this_thread::get_id();
              returns_.fetch_add(1);
            }};
  }
  int returns() const { return returns_.load(); }
  // Until it is given back, or for longer than that can take.
  void wait() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (returns() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(returns(), 1);
  }

  std::vector<float> values{1, 2, 3, 4, 5, 6};
  std::thread::id thread;

 private:
  std::atomic<int> returns_{0};
};

TEST(FromBlob, SharesTheMemory) {
  std::vector<double> values{1, 2, 3, 4, 5, 6};
  const auto before = memory_stats("cpu:1").allocations;
  const Tensor x = from_blob(values.data(), {2, 3}, {.device = "cpu:1"});
  EXPECT_EQ(memory_stats("cpu:1").allocations, before);
  EXPECT_EQ(x.sizes(), Shape({2, 3}));
  EXPECT_EQ(x.strides(), Shape({3, 1}));
  EXPECT_EQ(x.dtype(), Dtype::f64);
  EXPECT_EQ(x.device(), Device("cpu:1"));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.const_data_ptr<double>(), values.data());
  x.mul_(10);
  EXPECT_EQ(values, (std::vector<double>{10, 20, 30, 40, 50, 60}));
  values[5] = 7;
  EXPECT_EQ(x.narrow(1, 1, 2).to_vector<double>(), (std::vector<double>{20, 30, 50, 7}));
}

TEST(FromBlob, AVoidPointerHasTheDtypeThatIsSaid) {
  std::vector<std::int32_t> values{1, 2};
  void* const data = values.data();
  EXPECT_EQ(from_blob(data, {2}).dtype(), Dtype::f32);
  EXPECT_EQ(from_blob(data, {2}, {.dtype = Dtype::i32}).to_vector<std::int32_t>(), values);
  EXPECT_EQ(from_blob(data, {4}, {.dtype = Dtype::bf16}).numel(), 4);
}

TEST(FromBlob, TakesStrides) {
  Blob blob;
  const Tensor columns = from_blob(blob.values.data(), {3, 2}, {.strides = {1, 3}});
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_EQ(columns.to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(columns.impl()->storage->bytes(), 24U);
  columns.add_(columns);
  EXPECT_EQ(blob.values, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  const Tensor repeated = from_blob(blob.values.data(), {2, 2}, {.strides = {0, 1}});
  EXPECT_EQ(repeated.to_vector<float>(), (std::vector<float>{2, 4, 2, 4}));
  EXPECT_TRUE(throws<ValueError>([&] { repeated.zero_(); }, "zero_", "same element"));
}

TEST(FromBlob, NeedsNoMemoryWithoutElements) {
  int returns = 0;
  {
    const Tensor x = from_blob(static_cast<float*>(nullptr), {0, 3},
                               {.deleter = [&](void* data) { returns += data == nullptr; }});
    EXPECT_EQ(x.numel(), 0);
    EXPECT_TRUE(x.to_vector<float>().empty());
  }
  EXPECT_EQ(returns, 1);
}

TEST(FromBlob, TheDeleterIsCalledOnceByWhoDropsTheLastTensor) {
  Blob blob;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options("cpu:1"));
  Tensor view = x.narrow(0, 2, 2);
  const Tensor sum = x.sum();
  x = {};
  EXPECT_EQ(blob.returns(), 0);
  std::thread([view = std::move(view), &blob]() mutable {
    view = {};
    EXPECT_EQ(blob.returns(), 1);
    EXPECT_EQ(blob.thread, std::this_thread::get_id());
  }).join();
  EXPECT_EQ(blob.returns(), 1);
  EXPECT_EQ(sum.item(), 21);
}

TEST(FromBlob, AnOwnerIsHeldAsLongAsTheMemoryIsInUse) {
  auto values = std::make_shared<std::vector<float>>(4, 1.0F);
  const std::weak_ptr<std::vector<float>> watch = values;
  float* const data = values->data();
  Tensor x = from_blob(data, {2, 2}, {.owner = std::move(values)});
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(x.sum().item(), 4);
  x = {};
  EXPECT_TRUE(watch.expired());
}

TEST(FromBlob, WhatIsSavedForBackwardHoldsTheMemory) {
  Blob blob;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options());
  BlobOptions trained{.requires_grad = true};
  std::vector<float> weights(6, 2);
  const Tensor w = from_blob(weights.data(), {6}, std::move(trained));
  {
    const Tensor loss = (w * x).sum();
    x = {};
    EXPECT_EQ(blob.returns(), 0);
    loss.backward();
  }
  EXPECT_EQ(blob.returns(), 1);
  EXPECT_EQ(w.grad().to_vector<float>(), blob.values);
}

TEST(FromBlobOrder, TheDeleterIsCalledAfterTheWorkOfItsStream) {
  const QueuedCompute queued;
  Blob blob;
  Gate gate;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options("cpu:1"));
  gate.hold(current_stream("cpu:1"));
  x.mul_(2);
  x = {};
  EXPECT_EQ(blob.returns(), 0);
  gate.open();
  blob.wait();
  EXPECT_NE(blob.thread, std::this_thread::get_id());
  EXPECT_EQ(blob.values[5], 12);
}

TEST(FromBlobOrder, TheDeleterIsCalledAfterEveryRecordedStream) {
  const std::vector<Stream> streams{copy_stream("cpu:1"), copy_stream("cpu:2"),
                                    copy_stream("cpu:3")};
  for (const Stream& busy : streams) {
    Blob blob;
    Gate gate;
    Tensor x = from_blob(blob.values.data(), {6}, blob.options("cpu:1"));
    for (const Stream& stream : streams) x.record_stream(stream);
    gate.hold(busy);
    x = {};
    EXPECT_EQ(blob.returns(), 0);
    gate.open();
    blob.wait();
  }
}

TEST(FromBlobOrder, TheDeleterIsCalledAfterTheLastOfSeveralStreams) {
  Blob blob;
  Gate first;
  Gate second;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options("cpu:1"));
  first.hold(copy_stream("cpu:1"));
  second.hold(copy_stream("cpu:2"));
  x.record_stream(copy_stream("cpu:1"));
  x.record_stream(copy_stream("cpu:2"));
  x = {};
  second.open();
  copy_stream("cpu:2").synchronize();
  EXPECT_EQ(blob.returns(), 0);
  first.open();
  blob.wait();
}

TEST(FromBlobOrder, TheDeleterIsCalledAfterACopyThatReadsTheMemory) {
  Blob blob;
  Gate gate;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options());
  const Stream copies = copy_stream("cpu:1");
  gate.hold(copies);
  const Tensor there = empty({6}, {.device = "cpu:1"});
  detail::copy_bytes(there, x, copies);
  x = {};
  EXPECT_EQ(blob.returns(), 0);
  gate.open();
  blob.wait();
  blob.values.assign(6, 0);
  copies.synchronize();
  EXPECT_EQ(there.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(FromBlobOrder, NoMemoryIsHeldBackByWorkThatDoesNotUseIt) {
  Blob held;
  Blob free;
  Gate gate;
  Gate other;
  Tensor x = from_blob(held.values.data(), {6}, held.options());
  Tensor y = from_blob(free.values.data(), {6}, free.options());
  gate.hold(copy_stream("cpu:1"));
  other.hold(copy_stream("cpu:2"));
  x.record_stream(copy_stream("cpu:1"));
  y.record_stream(copy_stream("cpu:2"));
  x = {};
  y = {};
  other.open();
  free.wait();
  EXPECT_EQ(held.returns(), 0);
  gate.open();
  held.wait();
}

TEST(FromBlobOrder, WithoutADeleterNobodyWaits) {
  std::vector<float> values(6, 1);
  Gate gate;
  Tensor x = from_blob(values.data(), {6});
  gate.hold(copy_stream("cpu:1"));
  x.record_stream(copy_stream("cpu:1"));
  x = {};
  gate.open();
  copy_stream("cpu:1").synchronize();
}

TEST(FromBlobOrder, IsNotCalledInAForkedChild) {
  Blob blob;
  Tensor x = from_blob(blob.values.data(), {6}, blob.options("cpu:1"));
  const int returns = testing::status_when_forked([&] {
    x = {};
    return blob.returns();
  });
  EXPECT_EQ(returns, 0);
  x = {};
  EXPECT_EQ(blob.returns(), 1);
}

TEST(FromBlobDeathTest, ADeleterThatThrowsTerminates) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> values(2);
  const auto drop = [&] {
    (void)from_blob(values.data(), {2},
                    {.deleter = [](void*) { throw std::runtime_error("from the deleter"); }});
  };
  EXPECT_DEATH(drop(), "terminate.*\n.*from the deleter");
}

// What is refused, and that whoever lent it still has it.
TEST(FromBlob, ReportsWhatCannotBeAndLeavesTheMemoryToItsOwner) {
  Blob blob;
  float* const data = blob.values.data();
  const auto refused = [&]<class E>(E*, float* at, const Shape& shape, BlobOptions options,
                                    const auto&... parts) {
    return throws<E>(
        [&] {
          options.deleter = blob.options().deleter;
          (void)from_blob(at, shape, options);
        },
        "from_blob", parts...);
  };
  const auto of = []<class E>(E* type) { return type; };
  ValueError* const value = of(static_cast<ValueError*>(nullptr));
  ShapeError* const shape = of(static_cast<ShapeError*>(nullptr));
  EXPECT_TRUE(refused(value, nullptr, {2, 3}, {}, "memory for 6 elements of f32", "null pointer"));
  EXPECT_TRUE(refused(value, reinterpret_cast<float*>(reinterpret_cast<char*>(data) + 1), {2}, {},
                      "aligned to 4 bytes", "f32", "0x"));
  EXPECT_TRUE(refused(value, data, {2, 2}, {.strides = {2, -1}}, "negative stride", "[2, -1]"));
  EXPECT_TRUE(refused(value, data, {2}, {.owner = std::make_shared<int>(1)}, "got both"));
  EXPECT_TRUE(
      refused(shape, data, {2, 3}, {.strides = {1}}, "expected 2 strides", "[2, 3]", "[1]"));
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_TRUE(refused(shape, data, {4, 2}, {.strides = {kFar, 1}}, "further than memory"));
  EXPECT_TRUE(refused(static_cast<DtypeError*>(nullptr), data, {2}, {.dtype = Dtype::f64},
                      "the pointer's, f32", "got f64"));
  EXPECT_TRUE(throws<ShapeError>(
      [&] {
        (void)from_blob(data, {2, -3}, blob.options());
      },
      "[2, -3]", "negative size"));
  EXPECT_TRUE(
      throws<DeviceError>([&] { (void)from_blob(data, {2}, blob.options("cpu:99")); }, "cpu:99"));
  std::vector<std::int64_t> whole{1, 2};
  EXPECT_TRUE(throws<DtypeError>(
      [&] { (void)from_blob(whole.data(), {2}, {.requires_grad = true}); }, "from_blob", "i64"));
  EXPECT_EQ(blob.returns(), 0);
}

}  // namespace from_blob_test
}  // namespace lockstep
