// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dlpack.hpp>
#include <lockstep/tensor/from_blob.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

// The collectives on memory of the program's own, where it is.
namespace lockstep {
namespace lent_memory_test {

using testing::first_devices;
using testing::throws;
using Values = std::vector<float>;

Values counting(std::size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

// A buffer for each of some devices, and tensors on them.
struct Buffers {
  Buffers(const std::vector<Device>& devices, std::size_t count) : values(devices.size()) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      values[i].resize(count);
      tensors.push_back(
          from_blob(values[i].data(), {static_cast<std::int64_t>(count)}, {.device = devices[i]}));
    }
  }
  void synchronize() const {
    for (const Tensor& tensor : tensors) lockstep::synchronize(tensor.device());
  }

  std::vector<Values> values;
  std::vector<Tensor> tensors;
};

TEST(LentMemory, ScatterReadsItWhereItIsAndKeepsAChunkThere) {
  Values values = counting(12);
  const Tensor x = from_blob(values.data(), {6, 2}, {.device = "cpu:1"});
  const std::vector<Tensor> chunks = comm::scatter(x, first_devices(3), {2, 2, 2});
  EXPECT_EQ(chunks[1].const_data_ptr<float>(), values.data() + 4);
  EXPECT_EQ(chunks[0].to_vector<float>(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(chunks[2].to_vector<float>(), (Values{8, 9, 10, 11}));
  EXPECT_EQ(gather(scatter(x, first_devices(3)), "cpu").to_vector<float>(), values);
}

TEST(LentMemory, OutputsAreWrittenWhereTheyAre) {
  const std::vector<Device> devices = first_devices(3);
  Values values = counting(1 << 16);
  const Tensor x = from_blob(values.data(), {std::int64_t{1} << 16});

  const Buffers copies(devices, values.size());
  comm::broadcast_out(x, copies.tensors);
  copies.synchronize();
  for (const Values& copy : copies.values) EXPECT_EQ(copy, values);

  const Buffers halves({"cpu:1", "cpu:2"}, values.size() / 2);
  comm::scatter_out(x, halves.tensors);
  halves.synchronize();
  EXPECT_EQ(halves.values[1].front(), values[values.size() / 2]);

  Values whole(values.size());
  const Tensor out = from_blob(whole.data(), {std::int64_t{1} << 16});
  comm::gather_out(halves.tensors, out);
  synchronize("cpu");
  EXPECT_EQ(whole, values);

  const Tensor sum = comm::reduce_add(copies.tensors);
  EXPECT_EQ(sum.to_vector<float>()[7], 21);
}

TEST(LentMemory, ThatWasLentTwiceIsKnownToBeShared) {
  Values values = counting(6);
  const Tensor x = from_blob(values.data(), {4});
  const Tensor again = from_blob(values.data() + 2, {4});
  const Tensor behind = from_blob(values.data() + 4, {2});
  EXPECT_TRUE(
      throws<ValueError>([&] { comm::broadcast_out(x, {again}); }, "index 0", "shares memory"));
  comm::broadcast_out(x.narrow(0, 0, 2), {behind});
  EXPECT_EQ(values, (Values{0, 1, 2, 3, 0, 1}));
}

TEST(LentMemory, IsItsOwnersWhereMemoryRunsShort) {
  Values values = counting(4);
  int returns = 0;
  std::int64_t shape = 4;
  dlpack::DLManagedTensorVersioned managed{
      .version = {1, 0},
      .manager_ctx = &returns,
      .deleter =
          [](dlpack::DLManagedTensorVersioned* self) { ++*static_cast<int*>(self->manager_ctx); },
      .flags = 0,
      .dl_tensor = {.data = values.data(),
                    .device = {dlpack::kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {dlpack::kDLFloat, 32, 1},
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0}};
  const auto lend = [&] {
    return from_blob(values.data(), {4}, {.deleter = [&returns](void*) { ++returns; }});
  };
  const auto share = [&] { return from_dlpack(&managed); };
  const auto copy = [&] { return from_dlpack(&managed, {.copy = true}); };
  const auto walk = [&](const auto& make, int returned_with_the_tensor) {
    bool failed = true;
    for (std::uint64_t n = 1; failed; ++n) {
      Tensor x;
      returns = 0;
      failed = testing::fails_at({n, false}, [&] { x = make(); });
      EXPECT_EQ(returns, failed ? 0 : returned_with_the_tensor) << "allocation " << n;
      x = {};
      EXPECT_EQ(returns, failed ? 0 : 1) << "allocation " << n;
    }
  };
  walk(lend, 0);
  walk(share, 0);
  walk(copy, 1);
}

TEST(LentMemory, CollectivesOfRanksWorkInIt) {
  // Small ones, which go through shared slots, and large ones.
  for (const std::size_t count : {3U, 1U << 18}) {
    distributed::run(first_devices(3), [count](const distributed::ProcessGroup& group) {
      const auto rank = static_cast<float>(group.rank());
      const auto size = static_cast<std::int64_t>(count);
      Values mine(count, rank + 1);
      const Tensor x = from_blob(mine.data(), {size}, {.device = group.device()});
      const auto taken = memory_stats(group.device()).allocations;
      distributed::all_reduce(x);
      EXPECT_EQ(memory_stats(group.device()).allocations, taken);
      EXPECT_EQ(x.const_data_ptr<float>(), mine.data());
      EXPECT_EQ(mine, Values(count, 6));

      mine.assign(count, rank);
      distributed::broadcast(x, 2);
      EXPECT_EQ(mine, Values(count, 2));

      mine.assign(count, rank);
      Values all(3 * count);
      distributed::all_gather_into_tensor(
          from_blob(all.data(), {3 * size}, {.device = group.device()}), x);
      EXPECT_EQ(all[0], 0);
      EXPECT_EQ(all.back(), 2);

      const int next = (group.rank() + 1) % 3;
      const int before = (group.rank() + 2) % 3;
      Values received(count);
      distributed::Work sent = group.send(x, next);
      distributed::recv(from_blob(received.data(), {size}, {.device = group.device()}), before);
      sent.wait();
      EXPECT_EQ(received, Values(count, static_cast<float>(before)));
    });
  }
}

}  // namespace lent_memory_test
}  // namespace lockstep
