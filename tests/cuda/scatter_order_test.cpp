// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/call_lines.hpp"
#include "cuda/schedules.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Scatter's order of work, call by call as the CUDA runtime sees it: each chunk is copied on its
// device's copy stream, the compute stream waits for that, and the chunk's memory goes back only
// after what the compute stream does with it.
namespace lockstep {
namespace scatter_order_test {

using testing::are;
using testing::for_each_device;
using testing::gpus;
using testing::joined;
using testing::Recorder;

std::vector<float> values_of(const Tensor& tensor) {
  const Tensor host = tensor.to("cpu");
  const auto* first = host.const_data_ptr<float>();
  return std::vector<float>(first, first + host.numel());
}

class ScatterCalls : public ::testing::TestWithParam<std::size_t> {
 protected:
  const std::vector<Device> devices_ = gpus(GetParam());

  void copy_then_wait_then_use_then_free(bool may_have_happened) const {
    const Tensor batch = ones({static_cast<std::int64_t>(8 * devices_.size()), 3});
    Recorder recorder(devices_);

    std::vector<Tensor> chunks = comm::scatter(batch, devices_);
    EXPECT_TRUE(are(recorder.take(),
                    joined(for_each_device(devices_, {"copy #: allocate", "copy #: copy"}),
                           for_each_device(devices_, {"compute #: waits for copy #"})),
                    may_have_happened));

    std::vector<Tensor> results;
    for (const Tensor& chunk : chunks) {
      results.push_back(
          detail::map<float, float>(chunk, detail::BindRight<float, detail::Plus<float>>{{}, 1}));
    }
    (void)recorder.take();
    chunks.clear();
    EXPECT_TRUE(are(recorder.take(),
                    for_each_device(devices_, {"copy #: waits for compute #", "copy #: free"}),
                    may_have_happened));
    for (const Tensor& result : results) {
      EXPECT_EQ(values_of(result), std::vector<float>(8 * 3, 2));
    }
  }

  // Onto a GPU that has none of the parts.
  void gather_is_the_mirror(bool may_have_happened) const {
    const std::vector<Device> others(devices_.begin() + 1, devices_.end());
    std::vector<Tensor> parts = parts_on(others);
    Recorder recorder(devices_);
    for (const Tensor& part : parts) part.zero_();
    (void)recorder.take();
    const Tensor whole = comm::gather(parts, 0, devices_[0]);
    EXPECT_TRUE(are(
        recorder.take(),
        joined(
            joined({"copy 0: allocate"}, for_each_device(others, {"copy 0: waits for compute #"})),
            {others.size() > 1 ? "copy 0: kernel" : "copy 0: copy", "compute 0: waits for copy 0"}),
        may_have_happened));

    // The sources are still being read: their memory goes back after the copy.
    parts.clear();
    EXPECT_TRUE(are(recorder.take(),
                    for_each_device(others, {"compute #: waits for copy 0", "compute #: free"}),
                    may_have_happened));
    EXPECT_EQ(values_of(whole), std::vector<float>(others.size() * 4 * 3, 0));
  }

  // Nothing else is behind or before the copies: not what the copy stream has to do.
  void gather_onto_one_of_the_parts(bool may_have_happened) const {
    std::vector<Tensor> parts = parts_on(devices_);
    Recorder recorder(devices_);
    for (const Tensor& part : parts) part.zero_();
    (void)recorder.take();
    const Tensor whole = comm::gather(parts, 0, devices_[0]);
    const std::vector<Device> others(devices_.begin() + 1, devices_.end());
    EXPECT_TRUE(are(recorder.take(),
                    joined(joined({"compute 0: allocate"},
                                  for_each_device(others, {"compute 0: waits for compute #"})),
                           {others.empty() ? "compute 0: copy" : "compute 0: kernel"}),
                    may_have_happened));

    parts.clear();
    EXPECT_TRUE(
        are(recorder.take(),
            joined({"compute 0: free"},
                   for_each_device(others, {"compute #: waits for compute 0", "compute #: free"})),
            may_have_happened));
    EXPECT_EQ(values_of(whole), std::vector<float>(devices_.size() * 4 * 3, 0));
  }

 private:
  static std::vector<Tensor> parts_on(const std::vector<Device>& devices) {
    std::vector<Tensor> parts;
    for (const Device& device : devices) parts.push_back(ones({4, 3}, {.device = device}));
    return parts;
  }
};

class GatherFromOthers : public ScatterCalls {};

// Nothing has happened yet when something else is issued.
TEST_P(ScatterCalls, CopyThenWaitThenUseThenFree) {
  testing::under(cudasim::Policy::lazy, 1, [&] { copy_then_wait_then_use_then_free(false); });
}

TEST_P(GatherFromOthers, IsTheMirror) {
  testing::under(cudasim::Policy::lazy, 1, [&] { gather_is_the_mirror(false); });
}

TEST_P(ScatterCalls, GatherOntoOneOfTheParts) {
  testing::under(cudasim::Policy::lazy, 1, [&] { gather_onto_one_of_the_parts(false); });
}

TEST_P(ScatterCalls, CopyThenWaitThenUseThenFreeUnderEachSeed) {
  testing::under_seeds(testing::kManySeeds, [&] { copy_then_wait_then_use_then_free(true); });
}

TEST_P(GatherFromOthers, IsTheMirrorUnderEachSeed) {
  testing::under_seeds(testing::kManySeeds, [&] { gather_is_the_mirror(true); });
}

TEST_P(ScatterCalls, GatherOntoOneOfThePartsUnderEachSeed) {
  testing::under_seeds(testing::kManySeeds, [&] { gather_onto_one_of_the_parts(true); });
}

INSTANTIATE_TEST_SUITE_P(Devices, ScatterCalls, ::testing::Values(1, 2, 4));
INSTANTIATE_TEST_SUITE_P(Devices, GatherFromOthers, ::testing::Values(2, 4));

}  // namespace scatter_order_test
}  // namespace lockstep
