// SPDX-License-Identifier: Apache-2.0
#include <lockstep/cuda/runtime/cuda_stream.hpp>

#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dlpack.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/call_lines.hpp"
#include "cuda/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {
namespace cuda_stream_test {

const Device kGpu = "cuda:2";

// A stream is known to be idle from a wait for it, or a question that says so, until its next use:
// by a kernel, a library, a copy or an order. Nothing happens unless somebody waits.
TEST(CudaStream, IsKnownToBeIdleUntilItsNextUse) {
  const Stream stream = pool_stream(kGpu);
  const Tensor host = ones({3});
  const Tensor image = ones({1, 1, 4, 4}, {.device = kGpu});
  const Tensor matrix = ones({4, 4}, {.device = kGpu});
  const Tensor other = zeros({3}, {.device = "cuda:1"});
  synchronize(kGpu);
  synchronize("cuda:1");
  const std::vector<std::pair<std::string, std::function<void()>>> uses{
      {"a kernel", [&] { matrix.zero_(); }},
      {"cuBLAS", [&] { (void)matmul(matrix, matrix); }},
      {"cuDNN", [&] { (void)conv2d(image, image.narrow(2, 0, 2).narrow(3, 0, 2).clone()); }},
      {"a copy", [&] { (void)host.to(kGpu); }},
      {"an order",
       [&] {
         other.fill_(1);
         stream.wait_stream(current_stream("cuda:1"));
       }},
  };
  testing::under(cudasim::Policy::lazy, 1, [&] {
    for (const auto& [name, use] : uses) {
      SCOPED_TRACE(name);
      stream.synchronize();
      EXPECT_TRUE(stream.state().known_idle());
      {
        const StreamGuard guard(stream);
        use();
      }
      EXPECT_FALSE(stream.state().known_idle());
      EXPECT_FALSE(stream.query());
      EXPECT_FALSE(stream.state().known_idle());
      synchronize("cuda:1");
      stream.record_event().synchronize();
      EXPECT_FALSE(stream.state().known_idle());
      EXPECT_TRUE(stream.query());
      EXPECT_TRUE(stream.state().known_idle());
    }
  });
}

TEST(CudaStream, ThatIsLentIsKnownToTheDriverAlone) {
  const Stream stream = pool_stream(kGpu);
  stream.synchronize();
  (void)dlpack_stream(stream);
  stream.synchronize();
  EXPECT_TRUE(stream.query());
  EXPECT_FALSE(stream.state().known_idle());
}

// What is known to be idle takes no question and no order.
TEST(CudaStream, AGatherOfIdleStreamsAsksNothing) {
  testing::under(cudasim::Policy::lazy, 1, [] {
    std::vector<Tensor> parts;
    for (const char* device : {"cuda:0", "cuda:1", "cuda:2"}) {
      parts.push_back(ones({4}, {.device = device}));
    }
    testing::Recorder recorder(testing::gpus(3));
    const Tensor whole = comm::gather(parts);
    const std::vector<cudasim::Call> calls = cudasim::take_calls();
    for (const char* function : {"cudaStreamQuery", "cudaEventRecord", "cudaStreamWaitEvent"}) {
      EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                              [&](const cudasim::Call& call) { return call.function == function; }),
                0)
          << function;
    }
    EXPECT_FALSE(calls.empty());
  });
}

}  // namespace cuda_stream_test
}  // namespace lockstep::cuda
