// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>

#include "support/better_blas.hpp"
#include "support/drawn_streams.hpp"
#include "support/ordered_stream.hpp"
#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace {

using lockstep::testing::DrawnStreams;
using lockstep::testing::OrderedStream;

void share_memory(const DrawnStreams::Streams& streams) {
  std::vector<OrderedStream*> mates;
  for (const lockstep::Stream& stream : streams) {
    mates.push_back(static_cast<OrderedStream*>(&stream.state()));
  }
  for (OrderedStream* const mate : mates) mate->share_memory_with(mates);
}

// Background threads that do pieces of several operations would put these in an order: none does.
void keep_operations_whole() {
  auto& cores = lockstep::detail::unbound_affinity;
  const auto before = cores;
  cores.emplace();
  CPU_SET(0, &*cores);
  (void)lockstep::detail::BackgroundThreads::instance();
  cores = before;
}

}  // namespace

// Test programs run on eight host devices, whatever the machine's cores, unless
// LOCKSTEP_HOST_DEVICES asks for another number. With LOCKSTEP_TEST_STREAMS, a seed, all of their
// streams are asynchronous, and the current ones are drawn.
int main(int argc, char** argv) {
  lockstep::testing::start_with_better_blas(argv);
  testing::InitGoogleTest(&argc, argv);
  lockstep::testing::TimeLimit::install();
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) {
    lockstep::set_host_device_count(8);
  }
  if (DrawnStreams::seed()) {
    lockstep::detail::HostBackend::make_stream = &OrderedStream::make;
    DrawnStreams::share_memory = &share_memory;
    keep_operations_whole();
    testing::UnitTest::GetInstance()->listeners().Append(
        new lockstep::testing::DrawStreamsForTests(lockstep::host_devices()));
  }
  return RUN_ALL_TESTS();
}
