// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/launches.hpp"
#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// What the coalesced collectives issue between GPUs without NCCL: a launch for all small tensors,
// and copies for what no launch can copy. What order they need is the simulator's to judge.
namespace lockstep {
namespace coalesced_test {

using Names = std::vector<std::string>;
using Values = std::vector<float>;

const std::vector<Device> kGpus = {"cuda:0", "cuda:1", "cuda:2"};

Tensor counting(std::int64_t count, float first, Device device) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(first + static_cast<float>(i % 1021));
  }
  return from_values(values, {count}, device);
}

Values values_of(const Tensor& tensor) {
  const Tensor host = tensor.to("cpu");
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

std::vector<Tensor> small_tensors(float first, Device device) {
  return {counting(8, first, device), counting(12, first + 1, device),
          counting(4, first + 2, device)};
}

struct Issued {
  Names launches;
  std::size_t copies = 0;
  bool operator==(const Issued&) const = default;
};

template <class Body>
Issued issued(const Body& body) {
  cudasim::record_calls(true);
  body();
  Issued all;
  for (const cudasim::Call& call : cudasim::take_calls()) {
    if (call.function == "cudaLaunchKernel") all.launches.push_back(testing::kernel_of(call));
    if (call.function == "cudaMemcpyAsync") ++all.copies;
    if (call.function == "cudaMemcpyPeerAsync") ++all.copies;
  }
  cudasim::record_calls(false);
  return all;
}

// Tries the pairs of GPUs out, which copies, before anything is counted.
class Coalesced : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Device& device : kGpus) (void)comm::broadcast(ones({4}, {.device = device}), kGpus);
  }
  const testing::WithoutNccl by_launches_;
};

TEST_F(Coalesced, BroadcastIsALaunchADevice) {
  testing::under_each_policy([] {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 40; ++i) tensors.push_back(counting(4 * (i % 5), float(i), "cuda:0"));
    std::vector<std::vector<Tensor>> copies;
    const Issued what = issued([&] { copies = comm::broadcast_coalesced(tensors, kGpus); });
    EXPECT_EQ(what, (Issued{.launches = Names(2, "TogetherKernel")}));
    for (const auto& of_device : copies) {
      for (std::size_t j = 0; j < tensors.size(); ++j) {
        EXPECT_EQ(values_of(of_device[j]), values_of(tensors[j]));
      }
    }
  });
}

TEST_F(Coalesced, WhatIsLargeOrOddIsCopiedByItself) {
  testing::under_each_policy([] {
    std::vector<Tensor> tensors = small_tensors(1, "cuda:0");
    tensors.insert(tensors.begin() + 1, counting(3, 5, "cuda:0"));    // no whole sixteen bytes
    tensors.push_back(counting(std::int64_t{1} << 18, 5, "cuda:0"));  // a MiB
    std::vector<std::vector<Tensor>> copies;
    const Issued what = issued([&] {
      copies = comm::broadcast_coalesced(tensors, {"cuda:0", "cuda:1"});
    });
    EXPECT_EQ(what, (Issued{.launches = Names(1, "TogetherKernel"), .copies = 2}));
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      EXPECT_EQ(values_of(copies[1][j]), values_of(tensors[j]));
    }
  });
}

TEST_F(Coalesced, ReplicasAreRefreshedByALaunchADevice) {
  testing::under_each_policy([] {
    const std::vector<Tensor> originals = small_tensors(1, "cuda:0");
    detail::ReplicaCache cache;
    (void)cache.refresh(originals, kGpus);
    for (const Tensor& original : originals) original.zero_();
    std::vector<Tensor> copies;
    const Issued what = issued([&] { copies = cache.refresh(originals, kGpus); });
    EXPECT_EQ(what, (Issued{.launches = Names(2, "TogetherKernel")}));
    for (std::size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(values_of(copies[i]), values_of(originals[i % originals.size()]));
    }
  });
}

// Whatever the number of tensors, each launch adds what one more device has.
TEST_F(Coalesced, SumsAreALaunchAnAddition) {
  testing::under_each_policy([] {
    std::vector<std::vector<Tensor>> inputs;
    for (const Device& device : kGpus) {
      inputs.push_back(small_tensors(static_cast<float>(inputs.size()), device));
    }
    std::vector<Tensor> sums;
    const Issued what = issued([&] { sums = comm::reduce_add_coalesced(inputs, "cuda:1"); });
    EXPECT_EQ(what, (Issued{.launches = Names(2, "TogetherKernel")}));
    for (std::size_t j = 0; j < sums.size(); ++j) {
      Values expected = values_of(inputs[0][j]);
      for (float& value : expected) value = 3 * value + 3;
      EXPECT_EQ(values_of(sums[j]), expected);
    }
  });
}

// Strided summands and those of half precision have memory of their own while they are added.
TEST_F(Coalesced, SumsThatNeedMoreAreMadeAlone) {
  testing::under_each_policy([] {
    std::vector<std::vector<Tensor>> inputs;
    for (const Device& device : kGpus) {
      inputs.push_back(small_tensors(1, device));
      inputs.back()[1] = counting(12, 1, device).reshape({3, 4}).transpose(0, 1);
      inputs.back()[2] = counting(4, 1, device).to(Dtype::bf16);
    }
    const std::vector<Tensor> sums = comm::reduce_add_coalesced(inputs, "cuda:0");
    EXPECT_EQ(values_of(sums[0]), (Values{3, 6, 9, 12, 15, 18, 21, 24}));
    EXPECT_EQ(values_of(sums[1]), (Values{3, 15, 27, 6, 18, 30, 9, 21, 33, 12, 24, 36}));
    EXPECT_EQ(values_of(sums[2].to(Dtype::f32)), (Values{3, 6, 9, 12}));
  });
}

// More sums than a launch takes, of dtypes that come by turns.
TEST_F(Coalesced, ManySumsOfTwoDtypes) {
  testing::under_each_policy([] {
    std::vector<std::vector<Tensor>> inputs(kGpus.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::int64_t j = 0; j < 150; ++j) {
        const Tensor each = counting(j % 5 + 1, static_cast<float>(i), kGpus[i]);
        inputs[i].push_back(j % 2 == 0 ? each : each.to(Dtype::i32));
      }
    }
    std::vector<Tensor> sums;
    const Issued what = issued([&] { sums = comm::reduce_add_coalesced(inputs); });
    EXPECT_EQ(what, (Issued{.launches = Names(8, "TogetherKernel")}));
    for (std::int64_t j = 0; j < 150; ++j) {
      const Tensor& sum = sums[static_cast<std::size_t>(j)];
      EXPECT_EQ(sum.dtype(), j % 2 == 0 ? Dtype::f32 : Dtype::i32);
      Values expected;
      for (std::int64_t k = 0; k <= j % 5; ++k) expected.push_back(static_cast<float>(3 * k + 3));
      EXPECT_EQ(values_of(sum.to(Dtype::f32)), expected) << j;
    }
  });
}

// The allocator of what was lent may have opened it to no other GPU's kernels.
TEST_F(Coalesced, WhatWasLentIsReadByNoOtherGpu) {
  testing::under_each_policy([] {
    std::vector<std::vector<Tensor>> all;
    for (const Device& device : kGpus) {
      std::vector<Tensor>& lent = all.emplace_back();
      for (const Tensor& tensor : small_tensors(1, device)) {
        lent.push_back(from_blob(tensor.impl()->data(), tensor.sizes(),
                                 {.device = device, .owner = std::make_shared<Tensor>(tensor)}));
      }
    }
    std::vector<std::vector<Tensor>> copies;
    Issued what = issued([&] { copies = comm::broadcast_coalesced(all[0], kGpus); });
    EXPECT_EQ(what, (Issued{.launches = {}, .copies = 6}));
    EXPECT_EQ(values_of(copies[2][1]), values_of(all[0][1]));

    std::vector<Tensor> sums;
    what = issued([&] { sums = comm::reduce_add_coalesced(all); });
    EXPECT_EQ(what, (Issued{.launches = Names(6, "BinaryKernel"), .copies = 6}));
    EXPECT_EQ(values_of(sums[2]), (Values{9, 12, 15, 18}));
  });
}

}  // namespace coalesced_test
}  // namespace lockstep
