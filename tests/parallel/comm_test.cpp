// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace comm = lockstep::comm;
using ls::testing::first_devices;
using ls::testing::Gate;
using ls::testing::QueuedCompute;
using ls::testing::throws;

namespace comm_test {

ls::Tensor numbers(std::int64_t count, ls::Dtype dtype, ls::Device device = "cpu:0") {
  return ls::arange(count, {.dtype = ls::Dtype::i64}).to(dtype).to(device);
}

TEST(Comm, M01BroadcastKeepsTheOriginalAndCopiesToTheOthers) {
  const ls::Tensor x = numbers(25, ls::Dtype::f32);
  const auto copies = comm::broadcast(x, first_devices(2));
  EXPECT_TRUE(copies[0].is_same(x));
  EXPECT_EQ(copies[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(copies[1].to_vector<float>(), x.to_vector<float>());
}

TEST(Comm, M02OutputsAreChecked) {
  // Devices and outputs cannot both be given, since these are two functions; and plain `cpu` is a
  // device as any other.
  const ls::Tensor x = numbers(5, ls::Dtype::f32);
  const ls::Tensor on_cpu = ls::zeros({5});
  const ls::Tensor on_device = ls::zeros({5}, {.device = "cpu:1"});
  const auto outs = comm::broadcast_out(x, {on_device, on_cpu});
  EXPECT_TRUE(outs[0].is_same(on_device));
  EXPECT_EQ(on_cpu.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(on_device.to_vector<float>(), x.to_vector<float>());

  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::broadcast_out(x, {on_device, ls::zeros({6})});
      },
      "broadcast_out", "index 1", "[6]", "[5]"));
  EXPECT_TRUE(throws<ls::DtypeError>(
      [&] {
        comm::broadcast_out(x, {on_device, ls::zeros({5}, {.dtype = ls::Dtype::f64})});
      },
      "broadcast_out", "index 1", "f64", "f32"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { comm::broadcast_out(x, {}); }, "at least one output"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { comm::broadcast_out(x, {ls::Tensor()}); },
                                     "index 0 is undefined"));
}

TEST(Comm, OutputsThatCannotBeWrittenAreRefusedBeforeAnythingIs) {
  const ls::Tensor x = numbers(4, ls::Dtype::f32);
  const ls::Tensor room = ls::zeros({4});
  const auto version = room.version();
  const ls::Tensor trained = ls::zeros({4}).requires_grad_();
  EXPECT_TRUE(throws<ls::AutogradError>(
      [&] {
        comm::broadcast_out(x, {room, trained});
      },
      "requires grad"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        comm::broadcast_out(x, {room, x});
      },
      "index 1", "shares memory"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        comm::broadcast_out(x, {room, room.detach()});
      },
      "output tensors 0 and 1 share memory"));
  const ls::Tensor two = ls::zeros({8});
  const ls::Tensor first = two.narrow(0, 0, 4);
  const ls::Tensor second = two.narrow(0, 4, 4);
  EXPECT_NO_THROW(comm::broadcast_out(x, {first, second})) << "one lies beside the other";
  EXPECT_NO_THROW(comm::broadcast_out(x, {second, first}));
  const ls::Tensor one = x.narrow(0, 0, 1);
  EXPECT_TRUE(throws<ls::ValueError>([&] { comm::broadcast_out(one, {one.detach()}); }, "index 0",
                                     "shares memory"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        comm::scatter_out(x, {room.narrow(0, 0, 2), x.narrow(0, 1, 2)});
      },
      "index 1", "shares memory"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        comm::gather_out({x.narrow(0, 0, 2), x.narrow(0, 2, 2)}, x);
      },
      "shares memory"));
  EXPECT_EQ(room.to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(room.version(), version);

  const ls::NoGradGuard guard;
  comm::broadcast_out(x, {trained});
  EXPECT_EQ(trained.to_vector<float>(), x.to_vector<float>());
  // Two halves of one tensor are apart.
  comm::scatter_out(x, {room.narrow(0, 2, 2), room.narrow(0, 0, 2)});
  EXPECT_EQ(room.to_vector<float>(), (std::vector<float>{2, 3, 0, 1}));
}

TEST(Comm, ScatterOutTakesTheChunksSizesFromTheOutputs) {
  const ls::Tensor x = numbers(12, ls::Dtype::f64).reshape({2, 6});
  const ls::Tensor first = ls::zeros({2, 1}, {.dtype = ls::Dtype::f64, .device = "cpu:1"});
  const ls::Tensor strided = ls::zeros({3, 2}, {.dtype = ls::Dtype::f64, .device = "cpu:2"}).t();
  const ls::Tensor rest = ls::zeros({2, 2}, {.dtype = ls::Dtype::f64});
  const auto version = strided.version();
  comm::scatter_out(x, {first, strided, rest}, -1);
  EXPECT_EQ(first.to_vector<double>(), (std::vector<double>{0, 6}));
  EXPECT_EQ(strided.to_vector<double>(), (std::vector<double>{1, 2, 3, 7, 8, 9}));
  EXPECT_EQ(rest.to_vector<double>(), (std::vector<double>{4, 5, 10, 11}));
  EXPECT_GT(strided.version(), version);

  EXPECT_TRUE(throws<ls::ValueError>([&] { comm::scatter_out(x, {first, rest}, 1); }, "sum to 6"));
  const auto refuses_scalars = [](const auto& call) {
    return throws<ls::ShapeError>(call, "chunk expects at least a 1-dimensional tensor");
  };
  const ls::Tensor scalar = ls::ones({});
  EXPECT_TRUE(refuses_scalars([&] { comm::scatter_out(scalar, {first, rest}); }));
  EXPECT_TRUE(refuses_scalars([&] { (void)comm::scatter(scalar, first_devices(2)); }));
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::scatter_out(x, {first, rest}, 0);
      },
      "scatter_out", "index 0", "[2, 1]"));
}

TEST(Comm, ReduceAddCoalescedTakesAsManyTensorsOfEachDevice) {
  const std::vector<ls::Tensor> three(3, ls::ones({2}));
  for (const std::vector<ls::Device>& devices : {std::vector<ls::Device>{}, first_devices(2)}) {
    const ls::functions::ReduceAddCoalesced sum{devices, "cpu"};
    EXPECT_TRUE(throws<ls::ValueError>([&] { (void)sum.forward(three); }, "ReduceAddCoalesced",
                                       "3 tensors and " + std::to_string(devices.size())));
  }
}

TEST(Comm, GatherNamesTheTensorThatIsUndefined) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::comm::gather({ls::ones({2}), ls::Tensor()});
      },
      "input tensor at index 1 is undefined"));
}

TEST(Comm, GatherOutWritesIntoTheOutput) {
  const ls::Tensor a = numbers(2, ls::Dtype::i64, "cpu:0").reshape({2, 1});
  const ls::Tensor b = numbers(4, ls::Dtype::i64, "cpu:1").reshape({2, 2});
  const ls::Tensor out = ls::zeros({2, 3}, {.dtype = ls::Dtype::i64, .device = "cpu:2"});
  const auto version = out.version();
  EXPECT_TRUE(comm::gather_out({a, b}, out, 1).is_same(out));
  EXPECT_EQ(out.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(out.version(), version + 1);
  const ls::Tensor strided = ls::zeros({3, 2}, {.dtype = ls::Dtype::i64}).t();
  comm::gather_out({a, b}, strided, 1);
  EXPECT_EQ(strided.to_vector<std::int64_t>(), out.to_vector<std::int64_t>());
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::gather_out({a, a}, out, 1);
      },
      "gather_out", "[2, 3]", "[2, 2]"));
  EXPECT_TRUE(throws<ls::DtypeError>(
      [&] {
        comm::gather_out({a, b}, ls::zeros({2, 3}), 1);
      },
      "f32", "i64"));
}

TEST(Comm, AnOutputIsOverwrittenAfterWhatItsDeviceHasToDoWithIt) {
  const ls::Tensor x = numbers(4, ls::Dtype::f32);
  const ls::Tensor read = ls::full({4}, 7, {.device = "cpu:1"});
  const ls::Tensor written = ls::full({4}, 7, {.device = "cpu:2"});
  const QueuedCompute queued;
  Gate gate;
  gate.hold(ls::current_stream("cpu:1"));
  gate.hold(ls::current_stream("cpu:2"));
  const ls::Tensor seen = read.clone();
  written.fill_(9);
  comm::broadcast_out(x, {read, written});
  const ls::Tensor after = read + 1;
  gate.open();
  EXPECT_EQ(seen.to_vector<float>(), (std::vector<float>{7, 7, 7, 7}));
  EXPECT_EQ(after.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(written.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
}

TEST(Comm, AnOutputIsNotOverwrittenWhileAnotherDeviceStillReadsIt) {
  const ls::Tensor x = numbers(4, ls::Dtype::f32);
  const ls::Tensor out = ls::full({4}, 7, {.device = "cpu:1"});
  const ls::Tensor strided = ls::full({2, 2}, 7, {.device = "cpu:2"}).t();
  const QueuedCompute queued;
  Gate gate;
  gate.hold(ls::copy_stream("cpu:3"));
  const ls::Tensor seen = comm::gather({out}, 0, "cpu:3");
  const ls::Tensor seen_strided = comm::gather({strided.t()}, 0, "cpu:3");
  comm::scatter_out(x, {out});
  comm::scatter_out(x.reshape({2, 2}), {strided});
  EXPECT_FALSE(ls::current_stream("cpu:1").query());
  EXPECT_FALSE(ls::current_stream("cpu:2").query());
  gate.open();
  EXPECT_EQ(seen.to_vector<float>(), (std::vector<float>{7, 7, 7, 7}));
  EXPECT_EQ(seen_strided.to_vector<float>(), (std::vector<float>{7, 7, 7, 7}));
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(strided.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
}

// The memory of an output belongs to whoever made it, and goes back to that stream.
TEST(Comm, TheMemoryOfAnOutputIsNotReusedBeforeTheCopyHasEnded) {
  const ls::Tensor x = numbers(4, ls::Dtype::f32);
  ls::Tensor out = ls::zeros({4}, {.device = "cpu:1"});
  const void* const place = out.impl()->data();
  Gate gate;
  gate.hold(ls::copy_stream("cpu:1"));
  {
    const ls::Stream other = ls::pool_stream("cpu:1");
    other.wait_stream(ls::current_stream("cpu:1"));
    const ls::StreamGuard guard(other);
    comm::broadcast_out(x, {out});
  }
  out = {};
  const ls::Tensor next = ls::zeros({4}, {.device = "cpu:1"});
  EXPECT_NE(next.impl()->data(), place);
  gate.open();
  ls::copy_stream("cpu:1").synchronize();
  EXPECT_EQ(next.to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
}

TEST(Comm, DevicesDefaultToAllOfTheMachine) {
  const std::vector<ls::Device> all = ls::devices();
  const ls::Tensor x = numbers(static_cast<std::int64_t>(all.size()), ls::Dtype::f32, "cpu");
  const auto copies = comm::broadcast(x);
  const auto coalesced = comm::broadcast_coalesced({x});
  const auto chunks = comm::scatter(x);
  ASSERT_EQ(copies.size(), all.size());
  ASSERT_EQ(coalesced.size(), all.size());
  ASSERT_EQ(chunks.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(copies[i].device(), all[i]);
    EXPECT_EQ(coalesced[i][0].device(), all[i]);
    EXPECT_EQ(chunks[i].device(), all[i]);
  }
  EXPECT_EQ(comm::gather(chunks).device(), all[0]);
  EXPECT_EQ(comm::gather(chunks).to_vector<float>(), x.to_vector<float>());
}

TEST(Comm, ScatterCopiesOnTheStreamsGiven) {
  const ls::Tensor x = numbers(8, ls::Dtype::f32, "cpu");
  const QueuedCompute queued;
  const ls::Stream compute = ls::current_stream("cpu:1");
  const ls::Stream side = ls::pool_stream("cpu:3");
  const std::vector<std::optional<ls::Stream>> streams = {std::nullopt, compute, std::nullopt,
                                                          side};
  Gate gate;
  gate.hold(compute);
  const auto chunks = comm::scatter(x, first_devices(4), {}, 0, streams);
  EXPECT_EQ(chunks[1].impl()->storage->owner(), compute);
  EXPECT_EQ(chunks[2].impl()->storage->owner(), ls::copy_stream("cpu:2"));
  EXPECT_EQ(chunks[3].impl()->storage->owner(), side);
  EXPECT_TRUE(ls::copy_stream("cpu:1").query());
  EXPECT_EQ(chunks[0].to_vector<float>(), (std::vector<float>{0, 1}));
  EXPECT_EQ(chunks[2].to_vector<float>(), (std::vector<float>{4, 5}));
  EXPECT_EQ(chunks[3].to_vector<float>(), (std::vector<float>{6, 7}));
  gate.open();
  EXPECT_EQ(chunks[1].to_vector<float>(), (std::vector<float>{2, 3}));

  EXPECT_TRUE(throws<ls::ValueError>([&] { comm::scatter(x, first_devices(2), {}, 0, streams); },
                                     "2 devices and 4 streams"));
  EXPECT_TRUE(throws<ls::DeviceError>([&] { comm::scatter(x, first_devices(1), {}, 0, {compute}); },
                                      "index 0", "cpu:1", "cpu:0"));
}

TEST(Comm, M03BroadcastCoalescedEqualsOneByOne) {
  const std::vector<ls::Tensor> tensors = {numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::f64),
                                           numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::i64),
                                           numbers(5, ls::Dtype::i32), numbers(5, ls::Dtype::f64)};
  const auto copies = comm::broadcast_coalesced(tensors, first_devices(2), 100);
  for (std::size_t j = 0; j < tensors.size(); ++j) {
    EXPECT_TRUE(copies[0][j].is_same(tensors[j]));
    EXPECT_EQ(copies[1][j].dtype(), tensors[j].dtype());
    EXPECT_EQ(copies[1][j].to(ls::Dtype::f64).to_vector<double>(),
              tensors[j].to(ls::Dtype::f64).to_vector<double>());
  }
  const auto before = copies[1][3].version();
  copies[1][0].zero_();
  copies[1][2].zero_();
  EXPECT_EQ(copies[1][3].version(), before);
  EXPECT_EQ(copies[1][3].to_vector<std::int64_t>()[9], 9);
}

TEST(Comm, M04AnEmptyTensorAmongOthers) {
  const std::vector<ls::Tensor> tensors = {numbers(0, ls::Dtype::u8), numbers(5, ls::Dtype::f32),
                                           numbers(5, ls::Dtype::f64)};
  const auto copies = comm::broadcast_coalesced(tensors, first_devices(2), 256);
  EXPECT_EQ(copies[1][0].numel(), 0);
  EXPECT_EQ(copies[1][1].to_vector<float>()[4], 4.0F);
  EXPECT_EQ(copies[1][2].to_vector<double>()[4], 4.0);
}

TEST(Comm, M05ReduceAddSumsOnTheDestination) {
  const ls::Tensor a = numbers(25, ls::Dtype::f64, "cpu:0");
  const ls::Tensor b = numbers(25, ls::Dtype::f64, "cpu:1");
  const ls::Tensor sum = comm::reduce_add({a, b}, "cpu:0");
  EXPECT_EQ(sum.device(), ls::Device("cpu:0"));
  EXPECT_EQ(sum.to_vector<double>()[24], 48.0);
  EXPECT_EQ(a.to_vector<double>()[24], 24.0);
}

TEST(Comm, M05WithoutADestinationTheSumIsWhereTheFirstInputIs) {
  const ls::Tensor a = numbers(3, ls::Dtype::f64, "cpu:2");
  const ls::Tensor b = numbers(3, ls::Dtype::f64, "cpu:1");
  EXPECT_EQ(comm::reduce_add({a, b}).device(), ls::Device("cpu:2"));
  EXPECT_EQ(comm::reduce_add_coalesced({{a}, {b}})[0].device(), ls::Device("cpu:2"));
  EXPECT_EQ(comm::reduce_add({a, b}).to_vector<double>(), (std::vector<double>{0, 2, 4}));
  EXPECT_EQ(comm::reduce_add({b}).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_TRUE(comm::reduce_add_coalesced(std::vector<std::vector<ls::Tensor>>(2)).empty());
}

TEST(Comm, IntegersOfASumWrapAround) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const ls::TensorOptions options{.dtype = ls::Dtype::i64, .device = "cpu:0"};
  const ls::Tensor sum =
      comm::reduce_add({ls::full({1}, kMost, options), ls::full({1}, 2, options)});
  EXPECT_EQ(sum.item<std::int64_t>(), -kMost);
}

TEST(Comm, HalfPrecisionIsSummedInSinglePrecision) {
  // 2048 + 1 is 2048 in f16, but the sum is rounded only once.
  std::vector<ls::Tensor> parts;
  for (const double value : {2048.0, 1.0, 1.0, 1.0, 1.0}) {
    parts.push_back(
        ls::full({1}, value,
                 {.device = ls::Device(ls::DeviceType::cpu, static_cast<int>(parts.size()))})
            .to(ls::Dtype::f16));
  }
  const ls::Tensor sum = comm::reduce_add(parts);
  EXPECT_EQ(sum.dtype(), ls::Dtype::f16);
  EXPECT_EQ(sum.to(ls::Dtype::f32).item(), 2052.0);
}

TEST(Comm, M06ReduceAddCoalesced) {
  const std::vector<ls::Tensor> on0 = {numbers(5, ls::Dtype::i64), numbers(10, ls::Dtype::f64)};
  const std::vector<ls::Tensor> on1 = {on0[0].to("cpu:1"), on0[1].to("cpu:1")};
  const auto sums = comm::reduce_add_coalesced({on0, on1}, "cpu:0");
  EXPECT_EQ(sums[0].to_vector<std::int64_t>()[4], 8);
  EXPECT_EQ(sums[1].to_vector<double>()[9], 18.0);
  const auto before = sums[1].version();
  sums[0].zero_();
  EXPECT_EQ(sums[1].version(), before);
}

TEST(Comm, M07TheDestinationMustHoldOneOfTheInputs) {
  EXPECT_TRUE(throws<ls::DeviceError>(
      [] { comm::reduce_add({numbers(5, ls::Dtype::f64, "cpu:1")}, "cpu:0"); },
      "expects destination to be on the same device with one of the tensors"));
}

TEST(Comm, M08ShapesThatDiffer) {
  const ls::Tensor a = ls::ones({5, 5}, {.device = "cpu:0"});
  const ls::Tensor b = ls::ones({5, 4}, {.device = "cpu:1"});
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::reduce_add({a, b}, "cpu:0");
      },
      "input 1 has invalid size: got [5, 4], but expected [5, 5]"));
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        comm::reduce_add_coalesced({{a, a}, {a, b}}, "cpu:0");
      },
      "reduce_add_coalesced: input 1 has invalid size: got [5, 4], but expected [5, 5]"));
}

TEST(Comm, DtypesAndListsThatDiffer) {
  const ls::Tensor a = ls::ones({2}, {.device = "cpu:0"});
  const ls::Tensor b = ls::ones({2}, {.dtype = ls::Dtype::f64, .device = "cpu:0"});
  EXPECT_TRUE(throws<ls::DtypeError>(
      [&] {
        comm::reduce_add({a, b});
      },
      "input 1 has dtype f64, but expected f32"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        comm::reduce_add_coalesced({{a, a}, {a}});
      },
      "list 1 has 1 tensors, but list 0 has 2"));
}

TEST(Comm, TheSumIsTakenInTheOrderGiven) {
  std::vector<ls::Tensor> parts;
  const std::vector<double> values = {1e16, 1.0, -1e16, 1.0};
  for (int i = 0; i < 4; ++i) {
    parts.push_back(
        ls::scalar_tensor(values[static_cast<std::size_t>(i)], ls::Device(ls::DeviceType::cpu, i)));
  }
  EXPECT_EQ(comm::reduce_add(parts, "cpu:0").item(), ((1e16 + 1.0) - 1e16) + 1.0);
}

TEST(Comm, AnOversizeTensorClosesItsBuffer) {
  // f32 and i64 never share one; a buffer is closed once it has reached the limit.
  const std::vector<ls::Tensor> tensors = {numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::i64),
                                           numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::f32),
                                           numbers(30, ls::Dtype::f32), numbers(5, ls::Dtype::i64)};
  const auto groups = comm::detail::buffer_groups(tensors, {40});
  const std::vector<std::vector<std::size_t>> expected = {{0, 2}, {1}, {3, 4}, {5}};
  EXPECT_EQ(groups, expected);
}

TEST(Comm, M09TheGroupsOfAReduction) {
  const std::vector<ls::Tensor> tensors = {numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::i64),
                                           numbers(5, ls::Dtype::f32),  numbers(5, ls::Dtype::f32),
                                           numbers(30, ls::Dtype::f32), numbers(5, ls::Dtype::i64)};
  const auto groups = comm::detail::take_tensors(tensors, 40);
  const std::vector<std::vector<std::size_t>> expected = {{0, 2}, {3}, {1}, {4}, {5}};
  EXPECT_EQ(groups, expected);
}

TEST(Comm, M09TheSumsOfAGroupShareOneBuffer) {
  std::vector<std::vector<ls::Tensor>> inputs;
  for (const ls::Device device : first_devices(2)) {
    inputs.push_back({numbers(5, ls::Dtype::f32, device), numbers(5, ls::Dtype::i64, device),
                      numbers(5, ls::Dtype::f32, device), numbers(5, ls::Dtype::f32, device),
                      numbers(30, ls::Dtype::f32, device), numbers(5, ls::Dtype::i64, device)});
  }
  const auto before = ls::memory_stats("cpu:1").allocations;
  const auto sums = comm::reduce_add_coalesced(inputs, "cpu:1", 40);
  EXPECT_EQ(ls::memory_stats("cpu:1").allocations - before, 5U);
  EXPECT_EQ(sums[0].impl()->storage, sums[2].impl()->storage);
  EXPECT_NE(sums[0].impl()->storage, sums[3].impl()->storage);
  for (std::size_t j = 0; j < sums.size(); ++j) {
    EXPECT_EQ(sums[j].dtype(), inputs[0][j].dtype());
    EXPECT_EQ(sums[j].to(ls::Dtype::f64).to_vector<double>(),
              (inputs[0][j] + inputs[0][j]).to(ls::Dtype::f64).to_vector<double>());
  }
  sums[0].zero_();
  EXPECT_EQ(sums[2].to_vector<float>()[4], 8.0F);
}

// Eight leaves of 100 elements on cpu:0, each used on two devices. No copy's gradient is
// contiguous, so that none of them can become the sum.
struct Used {
  std::vector<ls::Tensor> leaves;
  ls::Tensor loss;

  explicit Used(std::vector<ls::Tensor> given = {}) : leaves(std::move(given)) {
    while (leaves.size() < 8) {
      leaves.push_back(ls::ones({100}, {.device = "cpu:0"}).requires_grad_());
    }
    const auto flat = ls::apply(ls::functions::Broadcast{first_devices(2)}, leaves);
    for (std::size_t i = 0; i < flat.size(); ++i) {
      const ls::Tensor part = (flat[i].sum() * static_cast<double>(i)).to("cpu:0");
      loss = loss.defined() ? loss + part : part;
    }
  }
};

TEST(Comm, GradientsOfACoalescedSumAreTakenOverWithoutACopy) {
  const Used used;
  const std::vector<ls::Tensor>& leaves = used.leaves;
  used.loss.backward();
  for (std::size_t j = 0; j < leaves.size(); ++j) {
    EXPECT_EQ(leaves[j].grad().impl()->storage, leaves[0].grad().impl()->storage);
    EXPECT_EQ(leaves[j].grad().to_vector<float>()[99], static_cast<float>(8 + 2 * j));
  }
}

TEST(Comm, TheBufferOfACoalescedSumGoesWithItsLastGradient) {
  const std::size_t before = ls::memory_stats("cpu:0").allocated_bytes;
  Used used;
  used.loss.backward();
  used.loss = {};
  const std::vector<ls::Tensor>& leaves = used.leaves;
  const std::size_t with_gradients = ls::memory_stats("cpu:0").allocated_bytes;
  for (std::size_t j = 1; j < leaves.size(); ++j) leaves[j].set_grad({});
  EXPECT_EQ(ls::memory_stats("cpu:0").allocated_bytes, with_gradients);
  leaves[0].set_grad({});
  EXPECT_LE(ls::memory_stats("cpu:0").allocated_bytes + 8 * 400, with_gradients);
  used.leaves.clear();
  EXPECT_EQ(ls::memory_stats("cpu:0").allocated_bytes, before);
}

TEST(Comm, GradientsInOneBufferAreChangedOneByOne) {
  const Used used;
  used.loss.backward();
  const std::vector<ls::Tensor>& leaves = used.leaves;
  const auto version = leaves[1].grad().version();
  leaves[0].grad().zero_();
  EXPECT_EQ(leaves[1].grad().version(), version);
  EXPECT_EQ(leaves[1].grad().to_vector<float>()[0], 10.0F);
  EXPECT_EQ(leaves[0].grad().to_vector<float>()[99], 0.0F);

  const Used again(leaves);  // a second backward adds to what is there
  again.loss.backward();
  EXPECT_EQ(leaves[0].grad().to_vector<float>()[0], 8.0F);
  EXPECT_EQ(leaves[1].grad().to_vector<float>()[99], 20.0F);

  ls::optim::SGD sgd(leaves, {.lr = 0.5});
  sgd.step();
  EXPECT_EQ(leaves[0].to_vector<float>()[0], 1 - 4.0F);
  EXPECT_EQ(leaves[7].to_vector<float>()[99], 1 - 22.0F);
  sgd.zero_grad(false);
  for (const ls::Tensor& leaf : leaves) EXPECT_EQ(leaf.grad().to_vector<float>()[50], 0.0F);
}

}  // namespace comm_test
