// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/fill.hpp>

#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// What scatter, gather and broadcast order between streams. Each order is looked at while a gate
// holds the work that it is about, so that a test fails every time that the order is missing:
// tests/mutations deletes them one by one.
namespace lockstep {
namespace scatter_order_test {

using testing::Gate;
using testing::QueuedCompute;
using Values = std::vector<float>;

// On plain cpu and then on `device`: `count` values from `first` on.
Tensor counting(std::int64_t count, float first = 0, Device device = {}) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return from_values(values, {count}, device);
}

Values values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = tensor.dtype()});
  detail::copy_into(host, tensor);
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

const void* place_of(const Tensor& tensor) { return tensor.impl()->data(); }

struct CopyElements {
  View<const float> in;
  View<float> out;
  void operator()(std::size_t i) const { out[i] = in[i]; }
};

// A kernel on the device's compute stream that reads `tensor` into the result.
Tensor read_by_kernel(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  Tensor out = empty(tensor.sizes(), tensor.options());
  launch(stream, static_cast<std::size_t>(tensor.numel()),
         CopyElements{detail::input<float>(tensor), detail::output<float>(out, stream)});
  return out;
}

void expect_unfinished(const Stream& stream) {
  EXPECT_FALSE(stream.query()) << "the stream of " << stream.device() << " waits for nothing";
  EXPECT_FALSE(stream.record_event().query());
}

// Both kinds of compute stream: what is right at once in the issuer must also be right on a GPU.
// What an immediate stream has always done by itself is tried with queued ones alone.
class WithEitherCompute : public ::testing::TestWithParam<bool> {
 protected:
  WithEitherCompute() {
    if (GetParam()) queued_.emplace();
  }

 private:
  std::optional<QueuedCompute> queued_;
};

std::string compute_name(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "queued" : "immediate";
}

class ScatterOrder : public WithEitherCompute {};
class GatherOrder : public WithEitherCompute {};
class BroadcastOrder : public WithEitherCompute {};
INSTANTIATE_TEST_SUITE_P(Compute, ScatterOrder, ::testing::Bool(), compute_name);
INSTANTIATE_TEST_SUITE_P(Compute, GatherOrder, ::testing::Bool(), compute_name);
INSTANTIATE_TEST_SUITE_P(Compute, BroadcastOrder, ::testing::Bool(), compute_name);

TEST_P(ScatterOrder, ComputeWaitsForTheCopy) {
  const Tensor source = counting(8);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  gate.hold(copy_stream("cpu:2"));
  const auto chunks = comm::scatter(source, {"cpu:1", "cpu:2"});
  expect_unfinished(current_stream("cpu:1"));
  expect_unfinished(current_stream("cpu:2"));
  gate.open();
  EXPECT_EQ(values_of(read_by_kernel(chunks[0])), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values_of(read_by_kernel(chunks[1])), (Values{4, 5, 6, 7}));
}

TEST_P(GatherOrder, AChunkIsNotOverwrittenWhileItsOwnStreamReadsIt) {
  const auto chunks = comm::scatter(counting(8), {"cpu:0", "cpu:1"});
  copy_stream("cpu:0").synchronize();
  Gate gate;
  gate.hold(copy_stream("cpu:0"));
  const Tensor whole = comm::gather({chunks[0]}, 0, "cpu:0");
  const Stream writer = pool_stream("cpu:0");
  chunks[0].impl()->storage->order_write(writer);
  expect_unfinished(writer);
  gate.open();
  EXPECT_EQ(values_of(whole), (Values{0, 1, 2, 3}));
}

TEST_P(ScatterOrder, ComputeWaitsForTheCopyOfColumns) {
  const Tensor source = from_values(Values{0, 1, 2, 3, 4, 5, 6, 7}, {2, 4});
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  gate.hold(copy_stream("cpu:2"));
  const auto chunks = comm::scatter(source, {"cpu:1", "cpu:2"}, {1, 3}, 1);
  expect_unfinished(current_stream("cpu:1"));
  expect_unfinished(current_stream("cpu:2"));
  gate.open();
  EXPECT_EQ(values_of(read_by_kernel(chunks[0])), (Values{0, 4}));
  EXPECT_EQ(values_of(read_by_kernel(chunks[1])), (Values{1, 2, 3, 5, 6, 7}));
}

TEST_P(ScatterOrder, TheCurrentStreamOfTheCallerIsTheOneThatWaits) {
  const Tensor source = counting(4);
  Gate gate;
  const Stream mine = pool_stream("cpu:1");
  const StreamGuard guard(mine);
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(source, {"cpu:1"});
  expect_unfinished(mine);
  EXPECT_TRUE(default_stream("cpu:1").query());
  gate.open();
  EXPECT_EQ(values_of(read_by_kernel(chunks[0])), (Values{0, 1, 2, 3}));
}

TEST_P(ScatterOrder, ComputeOfOneDeviceDoesNotWaitForAnother) {
  const Tensor source = counting(8);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(source, {"cpu:1", "cpu:2"});
  copy_stream("cpu:2").synchronize();
  EXPECT_EQ(values_of(read_by_kernel(chunks[1])), (Values{4, 5, 6, 7}));
  expect_unfinished(current_stream("cpu:1"));
  gate.open();
  EXPECT_EQ(values_of(chunks[0]), (Values{0, 1, 2, 3}));
}

TEST(QueuedScatterOrder, AChunkIsNotReusedWhileComputeStillReadsIt) {
  const QueuedCompute queued;
  const Tensor first_batch = counting(8);
  const Tensor second_batch = counting(8, 100);
  Gate gate;
  gate.hold(current_stream("cpu:1"));
  auto chunks = comm::scatter(first_batch, {"cpu:1", "cpu:2"});
  const Tensor out = read_by_kernel(chunks[0]);
  const void* const place = place_of(chunks[0]);
  chunks.clear();
  chunks = comm::scatter(second_batch, {"cpu:1", "cpu:2"});
  copy_stream("cpu:1").synchronize();
  EXPECT_NE(place_of(chunks[0]), place);
  gate.open();
  EXPECT_EQ(values_of(out), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values_of(chunks[0]), (Values{100, 101, 102, 103}));
}

TEST_P(ScatterOrder, TheSourceIsNotReusedWhileItIsStillRead) {
  Tensor source = counting(8);
  const void* const place = place_of(source);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(source, {"cpu:1"});
  source = {};
  const Tensor other = full({8}, 9);
  EXPECT_NE(place_of(other), place);
  gate.open();
  EXPECT_EQ(values_of(chunks[0]), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_P(ScatterOrder, APackedCopyOfTheSourceIsNotReusedEither) {
  const Tensor rows = from_values(Values{0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor columns = detail::make_view(rows, {3, 2}, {1, 3}, 0);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(columns, {"cpu:1"});
  const Tensor other = full({3, 2}, 9);
  gate.open();
  EXPECT_EQ(values_of(chunks[0]), (Values{0, 3, 1, 4, 2, 5}));
}

TEST_P(ScatterOrder, AKernelThatOverwritesTheSourceWaitsForTheCopy) {
  const Tensor source = counting(8);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(source, {"cpu:1"});
  const Stream stream = current_stream("cpu");
  EXPECT_TRUE(stream.query());
  (void)detail::output<float>(source, stream);
  expect_unfinished(stream);
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(copy_stream("cpu:1").query());
}

// The thread that overwrites the source has either placed its wait, or it has gone on: one of the
// two is seen, whatever the machine's load.
void expect_writer_waits(const std::function<void(const Tensor&)>& write) {
  std::atomic<bool> written{false};
  std::jthread writer;
  const Tensor source = counting(8);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto chunks = comm::scatter(source, {"cpu:1"});
  writer = std::jthread([&] {
    write(source);
    written = true;
  });
  while (current_stream("cpu").query() && !written) std::this_thread::yield();
  EXPECT_FALSE(written);
  gate.open();
  writer.join();
  EXPECT_EQ(values_of(chunks[0]), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values_of(source), Values(8, 9));
}

TEST_P(ScatterOrder, FillingTheSourceWaitsForTheCopy) {
  expect_writer_waits([](const Tensor& source) { detail::fill(source, 9); });
}

TEST_P(ScatterOrder, APointerToOverwriteTheSourceWaitsForTheCopy) {
  expect_writer_waits([](const Tensor& source) {
    auto* data = source.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < source.numel(); ++i) data[i] = 9;
  });
}

TEST_P(ScatterOrder, CopyingOntoTheSourceWaitsForTheCopy) {
  const Tensor nines = full({8}, 9);
  expect_writer_waits([&](const Tensor& source) { detail::copy_into(source, nines); });
}

TEST_P(ScatterOrder, TheCopyWaitsForWhatTheSourcesStreamWaitsFor) {
  const Tensor source = counting(4);
  Gate gate;
  gate.hold(copy_stream("cpu:3"));
  current_stream("cpu").wait_stream(copy_stream("cpu:3"));
  const auto chunks = comm::scatter(source, {"cpu:1"});
  EXPECT_FALSE(copy_stream("cpu:1").query());
  gate.open();
  EXPECT_EQ(values_of(chunks[0]), (Values{0, 1, 2, 3}));
}

TEST(QueuedScatterOrder, TheCopyWaitsForTheKernelThatMakesTheSource) {
  const QueuedCompute queued;
  const Tensor source = full({4}, 1, {.device = "cpu:2"});
  Gate gate;
  gate.hold(current_stream("cpu:2"));
  detail::fill(source, 5);
  const auto chunks = comm::scatter(source, {"cpu:1", "cpu:2"});
  EXPECT_FALSE(copy_stream("cpu:1").query());
  gate.open();
  EXPECT_EQ(values_of(chunks[0]), (Values{5, 5}));
  EXPECT_EQ(values_of(chunks[1]), (Values{5, 5}));
}

TEST_P(GatherOrder, ComputeWaitsForTheCopy) {
  const std::vector<Tensor> inputs{counting(3, 0, "cpu:1"), counting(2, 3, "cpu:2")};
  Gate gate;
  gate.hold(copy_stream("cpu:0"));
  const Tensor result = comm::gather(inputs, 0, "cpu:0");
  expect_unfinished(current_stream("cpu:0"));
  gate.open();
  EXPECT_EQ(values_of(read_by_kernel(result)), (Values{0, 1, 2, 3, 4}));
}

TEST(QueuedGatherOrder, TheResultIsNotReusedWhileComputeStillReadsIt) {
  const QueuedCompute queued;
  const std::vector<Tensor> first{counting(3, 0, "cpu:1"), counting(2, 3, "cpu:2")};
  const std::vector<Tensor> second{counting(3, 100, "cpu:1"), counting(2, 103, "cpu:2")};
  Gate gate;
  gate.hold(current_stream("cpu:0"));
  Tensor result = comm::gather(first, 0, "cpu:0");
  const Tensor out = read_by_kernel(result);
  const void* const place = place_of(result);
  result = {};
  result = comm::gather(second, 0, "cpu:0");
  copy_stream("cpu:0").synchronize();
  EXPECT_NE(place_of(result), place);
  gate.open();
  EXPECT_EQ(values_of(out), (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(values_of(result), (Values{100, 101, 102, 103, 104}));
}

TEST_P(GatherOrder, InputsAreNotReusedWhileTheyAreStillRead) {
  std::vector<Tensor> inputs{counting(3, 0, "cpu:1"), counting(3, 3, "cpu:2")};
  const void* const first = place_of(inputs[0]);
  const void* const second = place_of(inputs[1]);
  Gate gate;
  gate.hold(copy_stream("cpu:0"));
  const Tensor result = comm::gather(inputs, 0, "cpu:0");
  inputs.clear();
  const Tensor on_first = full({3}, 9, {.device = "cpu:1"});
  const Tensor on_second = full({3}, 9, {.device = "cpu:2"});
  EXPECT_NE(place_of(on_first), first);
  EXPECT_NE(place_of(on_second), second);
  gate.open();
  EXPECT_EQ(values_of(result), (Values{0, 1, 2, 3, 4, 5}));
}

TEST_P(GatherOrder, AKernelThatOverwritesAnInputWaitsForTheCopy) {
  const std::vector<Tensor> inputs{counting(3, 0, "cpu:1"), counting(3, 3, "cpu:2")};
  current_stream("cpu:2").synchronize();
  Gate gate;
  gate.hold(copy_stream("cpu:0"));
  const Tensor result = comm::gather(inputs, 0, "cpu:0");
  const Stream stream = current_stream("cpu:2");
  EXPECT_TRUE(stream.query());
  (void)detail::output<float>(inputs[1], stream);
  expect_unfinished(stream);
  gate.open();
  EXPECT_EQ(values_of(result), (Values{0, 1, 2, 3, 4, 5}));
}

TEST(QueuedGatherOrder, TheCopyWaitsForEveryKernelThatMakesAnInput) {
  const QueuedCompute queued;
  const std::vector<Tensor> inputs{full({2}, 1, {.device = "cpu:1"}),
                                   full({2}, 1, {.device = "cpu:2"})};
  for (const Tensor& late : inputs) {
    Gate gate;
    gate.hold(current_stream(late.device()));
    detail::fill(late, 5);
    const Tensor result = comm::gather(inputs, 0, "cpu:0");
    EXPECT_FALSE(copy_stream("cpu:0").query());
    gate.open();
    synchronize("cpu:0");
    const Values values = values_of(result);
    EXPECT_EQ(values[late.is_same(inputs[0]) ? 0 : 2], 5);
  }
}

TEST(QueuedGatherOrder, AResultInHostMemoryIsCompleteWhenGatherReturns) {
  const QueuedCompute queued;
  std::atomic<bool> returned{false};
  std::jthread gatherer;
  const Tensor input = full({2}, 1, {.device = "cpu:1"});
  Values values;
  Gate gate;
  gate.hold(current_stream("cpu:1"));
  detail::fill(input, 5);
  gatherer = std::jthread([&] {
    const Tensor result = comm::gather({input, input}, 0, "cpu");
    returned = true;
    const auto* data = static_cast<const float*>(place_of(result));
    values.assign(data, data + 4);
  });
  while (copy_stream("cpu").query() && !returned) std::this_thread::yield();
  EXPECT_FALSE(returned);
  gate.open();
  gatherer.join();
  EXPECT_EQ(values, (Values{5, 5, 5, 5}));
}

TEST_P(BroadcastOrder, ComputeWaitsForTheCopy) {
  const std::vector<Tensor> tensors{counting(3), counting(2, 3)};
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  gate.hold(copy_stream("cpu:2"));
  const auto copies = comm::broadcast_coalesced(tensors, {"cpu:1", "cpu:2"});
  const auto more = comm::broadcast(tensors[0], {"cpu", "cpu:2"});
  expect_unfinished(current_stream("cpu:1"));
  expect_unfinished(current_stream("cpu:2"));
  gate.open();
  for (const auto& of_device : copies) {
    EXPECT_EQ(values_of(read_by_kernel(of_device[0])), (Values{0, 1, 2}));
    EXPECT_EQ(values_of(read_by_kernel(of_device[1])), (Values{3, 4}));
  }
  EXPECT_EQ(values_of(read_by_kernel(more[1])), (Values{0, 1, 2}));
}

TEST_P(BroadcastOrder, ComputeWaitsForTheCopyOfOneTensor) {
  const Tensor tensor = counting(3);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto copies = comm::broadcast(tensor, {"cpu", "cpu:1"});
  expect_unfinished(current_stream("cpu:1"));
  gate.open();
  EXPECT_EQ(values_of(read_by_kernel(copies[1])), (Values{0, 1, 2}));
}

TEST(QueuedBroadcastOrder, CopiesAreNotReusedWhileComputeStillReadsThem) {
  const QueuedCompute queued;
  const std::vector<Tensor> first{counting(3), counting(2, 3)};
  const std::vector<Tensor> second{counting(3, 100), counting(2, 103)};
  Gate gate;
  gate.hold(current_stream("cpu:1"));
  auto copies = comm::broadcast_coalesced(first, {"cpu:1"});
  const Tensor out_0 = read_by_kernel(copies[0][0]);
  const Tensor out_1 = read_by_kernel(copies[0][1]);
  const void* const place = place_of(copies[0][0]);
  copies.clear();
  copies = comm::broadcast_coalesced(second, {"cpu:1"});
  copy_stream("cpu:1").synchronize();
  EXPECT_NE(place_of(copies[0][0]), place);
  gate.open();
  EXPECT_EQ(values_of(out_0), (Values{0, 1, 2}));
  EXPECT_EQ(values_of(out_1), (Values{3, 4}));
  EXPECT_EQ(values_of(copies[0][1]), (Values{103, 104}));
}

TEST_P(BroadcastOrder, SourcesAreNotReusedWhileTheyAreStillRead) {
  std::vector<Tensor> tensors{counting(8), counting(8, 8)};
  const void* const place_0 = place_of(tensors[0]);
  const void* const place_1 = place_of(tensors[1]);
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto copies = comm::broadcast_coalesced(tensors, {"cpu:1"});
  tensors.clear();
  const std::vector<Tensor> others{full({8}, 9), full({8}, 9)};
  for (const Tensor& other : others) {
    EXPECT_NE(place_of(other), place_0);
    EXPECT_NE(place_of(other), place_1);
  }
  gate.open();
  EXPECT_EQ(values_of(copies[0][0]), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values_of(copies[0][1]), (Values{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST_P(BroadcastOrder, AKernelThatOverwritesASourceWaitsForTheCopy) {
  const std::vector<Tensor> tensors{counting(3), counting(2, 3)};
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  const auto copies = comm::broadcast_coalesced(tensors, {"cpu:1"});
  const Stream stream = current_stream("cpu");
  EXPECT_TRUE(stream.query());
  (void)detail::output<float>(tensors[1], stream);
  expect_unfinished(stream);
  gate.open();
  EXPECT_EQ(values_of(copies[0][1]), (Values{3, 4}));
}

TEST(QueuedBroadcastOrder, TheCopyWaitsForTheKernelThatMakesTheSource) {
  const QueuedCompute queued;
  const std::vector<Tensor> tensors{full({4}, 1, {.device = "cpu:2"})};
  Gate gate;
  gate.hold(current_stream("cpu:2"));
  detail::fill(tensors[0], 5);
  const auto copies = comm::broadcast_coalesced(tensors, {"cpu:2", "cpu:1"});
  EXPECT_FALSE(copy_stream("cpu:1").query());
  gate.open();
  EXPECT_EQ(values_of(copies[1][0]), (Values{5, 5, 5, 5}));
}

}  // namespace scatter_order_test
}  // namespace lockstep
