// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/ddp/distributed_buffers.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace lockstep {
namespace distributed_buffers_test {

using distributed::ProcessGroup;

// The memory of the last time serves tensors that it fits, and no others.
TEST(CoalescedBroadcast, MayBeOfOtherTensorsTheNextTime) {
  distributed::run(testing::first_devices(2), [](const ProcessGroup& group) {
    detail::CoalescedBroadcast broadcast;
    const auto expect_sent = [&](const Shape& shape, Dtype dtype) {
      const TensorOptions options{.dtype = dtype, .device = group.device()};
      const auto of_rank = [&](int rank) {
        return std::vector<Tensor>{full(shape, (rank + 1) / 3.0, options),
                                   full(shape, (rank + 1) / 7.0, options)};
      };
      const std::vector<Tensor> tensors = of_rank(group.rank());
      broadcast.run(group, tensors, 1);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(tensors[i].to(Dtype::f64).to_vector<double>(),
                  of_rank(1)[i].to(Dtype::f64).to_vector<double>());
      }
    };
    for (int time = 0; time < 2; ++time) {
      expect_sent({4}, Dtype::f32);
      expect_sent({90}, Dtype::f32);
      expect_sent({90}, Dtype::f64);
    }
  });
}

}  // namespace distributed_buffers_test
}  // namespace lockstep
