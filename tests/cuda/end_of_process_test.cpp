// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/pin_memory.hpp>

#include <cudasim/cudasim.hpp>

#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <vector>

// What lives longer than `main`, as a static does, asks nothing of CUDA as it goes, which may be
// gone before. Each test is a process of its own.
namespace lockstep {
namespace end_of_process_test {

const Device kGpu = "cuda:1";

struct Kept {
  std::vector<Tensor> tensors;

  ~Kept() {
    cudasim::record_calls(true);
    tensors.clear();
    const std::vector<cudasim::Call> calls = cudasim::take_calls();
    for (const cudasim::Call& call : calls) std::cerr << call.function << '\n';
    if (!calls.empty()) std::_Exit(1);
  }
};

// All of it still in use by the GPU: nothing forces that to happen.
[[noreturn]] void end_with_tensors() {
  static Kept kept;  // before the first use of a GPU, and so destroyed after what that has left
  cudasim::set_policy(cudasim::Policy::lazy);
  {
    const testing::MayLeak memory;
    kept.tensors = {ones({5000}), ones({5000}, {.device = "cpu:2"}), ones({8}, {.device = kGpu})};
    const PinMemoryGuard pinned;
    kept.tensors.push_back(ones({5000}));
  }
  for (const std::size_t i : {0U, 3U}) (void)comm::scatter(kept.tensors[i], {kGpu});
  current_stream("cpu:2").wait_stream(copy_stream(kGpu));
  kept.tensors[0].impl()->storage->keep_until(copy_stream(kGpu), copy_stream(kGpu).record_event());
  std::exit(0);
}

TEST(EndOfProcessDeathTest, StaticTensorsAskNothingOfTheGpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_with_tensors(), ::testing::ExitedWithCode(0), "");
}

}  // namespace end_of_process_test
}  // namespace lockstep
