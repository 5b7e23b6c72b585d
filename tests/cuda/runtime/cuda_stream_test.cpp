// SPDX-License-Identifier: Apache-2.0
#include <lockstep/cuda/runtime/cuda_stream.hpp>

#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/runtime/cuda_device.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/tensor/copy.hpp>
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
// by a kernel, a copy or an order. Nothing happens unless somebody waits. (No use takes memory,
// which is one by itself.)
TEST(CudaStream, IsKnownToBeIdleUntilItsNextUse) {
  const Stream stream = pool_stream(kGpu);
  const Tensor host = ones({4, 4});
  const Tensor matrix = ones({4, 4}, {.device = kGpu});
  const Tensor other = zeros({3}, {.device = "cuda:1"});
  synchronize(kGpu);
  synchronize("cuda:1");
  const std::vector<std::pair<std::string, std::function<void()>>> uses{
      {"a kernel", [&] { matrix.zero_(); }},
      {"a copy", [&] { lockstep::detail::copy_into(matrix, host); }},
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

// A library's calls are a use when they have been made.
TEST(CudaStream, IsUsedUntilALibraryIsLet) {
  const Stream stream = pool_stream(kGpu);
  {
    const CudnnOnStream cudnn(static_cast<CudaStream&>(stream.state()));
    stream.synchronize();
  }
  EXPECT_FALSE(stream.state().known_idle());
  stream.synchronize();
  EXPECT_TRUE(stream.state().known_idle());
}

TEST(CudaStream, ThatIsLentIsKnownToTheDriverAlone) {
  // Not one of the pool's, which other tests expect to be known. Streams are never destroyed.
  static CudaStream& lent = *new CudaStream(kGpu, CudaDevice::at(kGpu).events);
  const Stream stream(lent);
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
