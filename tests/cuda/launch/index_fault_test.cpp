// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cudasim/cudasim.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

// The record of a stream that several ranks use: what `in_range` does on the GPU for one of them
// while the host looks for another.
namespace lockstep {
namespace cuda_index_fault_test {

using cuda::IndexFault;
using cuda::IndexFaults;
using testing::throws;

bool meet(const View<IndexFault>& fault, std::int64_t index, std::size_t position) {
  return cuda::in_range(fault, lockstep::detail::RowsOf::embedding, index, position, 10);
}

TEST(IndexFault, IsReadWhenItIsWrittenDownAndNotBefore) {
  const detail::StreamState& stream = current_stream("cuda:7").state();
  IndexFaults& faults = IndexFaults::instance();
  const auto fault = faults.of(stream);
  EXPECT_TRUE(meet(fault, 9, 0));
  faults.raise(stream);
  ++fault.data->claimed;  // a kernel is about to write it down
  faults.raise(stream);
  fault.data->met = {lockstep::detail::RowsOf::embedding, 12, 3, 10};
  EXPECT_FALSE(meet(fault, 77, 5));  // there is one before it
  ++fault.data->written;
  EXPECT_TRUE(throws<IndexError>([&] { faults.raise(stream); }, "12"));
  faults.raise(stream);
  EXPECT_FALSE(meet(fault, 13, 4));
  EXPECT_FALSE(meet(fault, 14, 4));
  EXPECT_TRUE(throws<IndexError>([&] { faults.raise(stream); }, "13"));
  faults.raise(stream);
}

TEST(IndexFault, TheDriverIsAskedAboutOtherStreamsOnlyWhereAFaultIsWritten) {
  const Device gpu = "cuda:7";
  const detail::StreamState& stream = current_stream(gpu).state();
  const detail::StreamState& other = copy_stream(gpu).state();
  IndexFaults& faults = IndexFaults::instance();
  const auto fault = faults.of(other);
  const auto questions = [&] {
    cudasim::record_calls(true);
    try {
      faults.raise(stream);
    } catch (const IndexError&) {
    }
    const auto calls = cudasim::take_calls();
    cudasim::record_calls(false);
    return std::count_if(calls.begin(), calls.end(), [](const cudasim::Call& call) {
      return call.function == "cudaStreamQuery";
    });
  };
  EXPECT_EQ(questions(), 0);
  EXPECT_FALSE(meet(fault, 15, 2));
  EXPECT_EQ(questions(), 1);
  EXPECT_EQ(questions(), 0);
}

// Each fault that is thrown is one that was met, as a whole.
TEST(IndexFault, IsOneFaultWhileOthersAreMet) {
  const detail::StreamState& stream = current_stream("cuda:7").state();
  IndexFaults& faults = IndexFaults::instance();
  const auto fault = faults.of(stream);
  std::atomic<bool> stop = false;
  std::thread kernels([&] {
    for (std::int64_t i = 100; !stop.load(); ++i) {
      (void)cuda::in_range(fault, lockstep::detail::RowsOf::embedding, i,
                           static_cast<std::size_t>(i), static_cast<std::size_t>(i));
      if (i % 8 == 0) std::this_thread::yield();
    }
  });
  int torn = 0;
  for (int thrown = 0; thrown < 500;) {
    try {
      faults.raise(stream);
      std::this_thread::yield();
    } catch (const IndexError& error) {
      ++thrown;
      const std::string text = error.what();
      const std::size_t first = text.find_first_of("0123456789");
      const std::string number =
          text.substr(first, text.find_first_not_of("0123456789", first) - first);
      std::size_t times = 0;
      for (std::size_t at = 0; (at = text.find(number, at)) != std::string::npos; ++at) ++times;
      if (times < 3) ++torn;
    }
  }
  stop = true;
  kernels.join();
  EXPECT_EQ(torn, 0);
  try {
    faults.raise(stream);  // what is left
  } catch (const IndexError&) {
  }
}

}  // namespace cuda_index_fault_test
}  // namespace lockstep
