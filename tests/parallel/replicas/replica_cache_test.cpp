// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace replica_cache_test {

using detail::ReplicaCache;
using testing::first_devices;
using testing::Gate;
using testing::QueuedCompute;
using testing::throws;
using Values = std::vector<float>;

std::vector<Tensor> originals() {
  return {full({3}, 1, {.device = "cpu:0"}), full({2}, 2, {.device = "cpu:0"})};
}

// What a refresh gives, one device after another.
struct Replicas {
  std::vector<Tensor> copies;
  Tensor of(std::size_t device, std::size_t tensor) const { return copies[2 * device + tensor]; }
};

std::uint64_t copies_of(const auto& call) {
  const std::uint64_t before = comm::detail::copies_issued().load();
  call();
  return comm::detail::copies_issued().load() - before;
}

TEST(ReplicaCache, CopiesOnlyWhatChanged) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  EXPECT_EQ(copies_of([&] { cache.refresh(tensors, first_devices(3)); }), 4U);
  EXPECT_EQ(copies_of([&] { cache.refresh(tensors, first_devices(3)); }), 0U);
  tensors[1].fill_(5);
  EXPECT_EQ(copies_of([&] {
              const Replicas replicas{cache.refresh(tensors, first_devices(3))};
              EXPECT_EQ(replicas.of(2, 1).to_vector<float>(), (Values{5, 5}));
            }),
            2U);
}

// What forward does to its replica's buffer is for that call.
TEST(ReplicaCache, ABufferThatSetDataHasReplacedIsThereAgainInTheNextCall) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  const Tensor given = Replicas{cache.refresh(tensors, first_devices(2))}.of(1, 0);
  given.set_data(zeros({1}, {.device = given.device()}));
  tensors[0].fill_(4);
  for (int i = 0; i < 2; ++i) {
    const Replicas next{cache.refresh(tensors, first_devices(2))};
    EXPECT_EQ(next.of(1, 0).to_vector<float>(), (Values{4, 4, 4}));
    next.of(1, 0).fill_(7);  // is noticed
  }
  EXPECT_EQ(given.to_vector<float>(), Values{0});
}

// What is cut short here has room for the first replica's copies, but has issued none of them.
TEST(ReplicaCache, ARefreshThatWasCutShortIsMadeUpForByTheNext) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  const QueuedCompute queued;
  Gate gate;
  gate.hold(copy_stream("cpu:1"));
  EXPECT_TRUE(throws<DeviceError>(
      [&] {
        cache.refresh(tensors, {"cpu:0", "cpu:1", "cpu:99"});
      },
      "cpu:99"));
  EXPECT_TRUE(current_stream("cpu:1").query());
  const Replicas replicas{cache.refresh(tensors, first_devices(3))};
  EXPECT_FALSE(current_stream("cpu:1").query()) << "the replica's memory is not there yet";
  const Tensor sum = replicas.of(1, 0) + 1;
  gate.open();
  EXPECT_EQ(sum.to_vector<float>(), (Values{2, 2, 2}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(replicas.of(i, 0).to_vector<float>(), (Values{1, 1, 1}));
    EXPECT_EQ(replicas.of(i, 1).to_vector<float>(), (Values{2, 2}));
  }
}

TEST(ReplicaCache, WhatChangesAfterARefreshThatWasCutShortIsCopied) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  cache.refresh(tensors, first_devices(3));
  tensors[0].fill_(7);
  EXPECT_TRUE(throws<DeviceError>(
      [&] {
        cache.refresh(tensors, {"cpu:0", "cpu:1", "cpu:99"});
      },
      "cpu:99"));
  tensors[1].fill_(8);
  const Replicas replicas{cache.refresh(tensors, first_devices(3))};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(replicas.of(i, 0).to_vector<float>(), (Values{7, 7, 7}));
    EXPECT_EQ(replicas.of(i, 1).to_vector<float>(), (Values{8, 8}));
  }
}

// A list of tensors that cannot be had is not taken for the one before.
TEST(ReplicaCache, ARefreshOfOtherTensorsThatWasCutShortLeavesNothingBehind) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  cache.refresh(tensors, first_devices(2));
  const std::vector<Tensor> others = {full({3}, 3, {.device = "cpu:0"}), tensors[1]};
  EXPECT_THROW(cache.refresh(others, {"cpu:0", "cpu:99"}), DeviceError);
  const auto first_copy = [&cache](const std::vector<Tensor>& list) {
    return Replicas{cache.refresh(list, first_devices(2))}.of(1, 0).to_vector<float>();
  };
  EXPECT_EQ(first_copy(others), (Values{3, 3, 3}));
  EXPECT_EQ(first_copy(tensors), (Values{1, 1, 1}));
}

// A copy onto a replica, while `reader` is still reading it: not before the gate opens. Refreshes
// under `first` and then under `second` as the device's current stream.
void expect_read_before_it_is_overwritten(const Stream& first, const Stream& reader,
                                          const Stream& second) {
  ReplicaCache cache;
  Gate gate;
  const std::vector<Tensor> tensors = originals();
  const auto refresh_on = [&](const Stream& stream) {
    const StreamGuard guard(stream);
    return Replicas{cache.refresh(tensors, first_devices(2))};
  };
  const Replicas replicas = refresh_on(first);
  copy_stream("cpu:1").synchronize();
  gate.hold(reader);
  Tensor read;
  {
    const StreamGuard guard(reader);
    read = replicas.of(1, 0) + 1;
  }
  tensors[0].fill_(7);
  synchronize("cpu:0");
  refresh_on(second);
  EXPECT_FALSE(copy_stream("cpu:1").query()) << "the copy waits for nothing";
  gate.open();
  synchronize("cpu:1");
  EXPECT_EQ(read.to_vector<float>(), (Values{2, 2, 2}));
  EXPECT_EQ(replicas.of(1, 0).to_vector<float>(), (Values{7, 7, 7}));
}

TEST(ReplicaCache, ACopyWaitsForTheCurrentStream) {
  const QueuedCompute queued;
  const Stream compute = default_stream("cpu:1");
  expect_read_before_it_is_overwritten(compute, compute, compute);
}

TEST(ReplicaCache, ACopyWaitsForAStreamThatIsCurrentNoMore) {
  const QueuedCompute queued;
  const Stream compute = default_stream("cpu:1");
  expect_read_before_it_is_overwritten(compute, compute, pool_stream("cpu:1"));
}

TEST(ReplicaCache, ACopyWaitsForAStreamThatIsCurrentForTheFirstTime) {
  const QueuedCompute queued;
  const Stream compute = default_stream("cpu:1");
  expect_read_before_it_is_overwritten(pool_stream("cpu:1"), compute, compute);
}

// The replicas' memory belongs to one device; a list that is in another order needs other memory.
TEST(ReplicaCache, ADeviceThatTakesAnothersPlaceGetsMemoryOfItsOwn) {
  ReplicaCache cache;
  const std::vector<Tensor> tensors = originals();
  cache.refresh(tensors, {"cpu:0", "cpu:1"});
  const Replicas replicas{cache.refresh(tensors, {"cpu:0", "cpu:2"})};
  EXPECT_EQ(replicas.of(1, 0).device(), Device("cpu:2"));
  EXPECT_EQ(replicas.of(1, 1).to_vector<float>(), (Values{2, 2}));
}

}  // namespace replica_cache_test
}  // namespace lockstep
