// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// What a DistributedDataParallel has done so far on this rank. Sizes are bytes of gradients; times
// are host times, summed over all iterations. Work within no_sync and forwards without grad mode do
// not count.
//
// **Torch counterpart.** DistributedDataParallel._get_ddp_logging_data.
struct DDPLoggingData {
  int rank = 0;
  int world_size = 1;
  Device device = {};
  std::size_t num_parameter_tensors = 0;
  std::size_t total_parameter_size_bytes = 0;

  std::vector<std::size_t> initial_bucket_sizes = {};
  bool has_rebuilt_buckets = false;
  std::vector<std::size_t> rebuilt_bucket_sizes = {};
  // The parameters' indices, in the order in which gradients became ready in the first iteration.
  std::vector<std::size_t> prev_iteration_grad_ready_order = {};

  std::uint64_t num_iterations = 0;           // synchronised backward passes
  std::size_t unused_parameter_size = 0;      // in the last one, on this rank
  bool can_set_static_graph = false;          // all passes so far used the same parameters here
  std::uint64_t num_all_reduces = 0;          // of buckets and of the ranks' messages
  std::uint64_t num_gradient_copies = 0;      // gradients that backward did not write into a bucket
  std::chrono::nanoseconds forward_time{0};   // forwards, with the broadcast of buffers
  std::chrono::nanoseconds backward_time{0};  // from the first gradient to the last
  std::chrono::nanoseconds wait_time{0};      // from there to the end of the last reduction
};

}  // namespace lockstep
