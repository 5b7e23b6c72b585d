// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include "parallel/layers.hpp"
#include "support/define_failing_calls.hpp"
#include "support/failing_calls_walk.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace lockstep {
namespace failing_calls_test {

using testing::CallKind;
using testing::f64;
using testing::fails_with;
using testing::L0;
using testing::Place;
using testing::walk_calls;

TEST(FailingCalls, AStepOfMoreReplicasThanThereHaveBeenThreadsFor) {
  LOCKSTEP_NEEDS_FAILING_CALLS();
  std::size_t count = detail::team_stats().threads_created;
  walk_calls("step", [&](Place place) {
    count += 3;
    DataParallel model{L0{}, std::vector<Device>(count, "cpu:0")};
    const Tensor x = f64(std::vector<double>(2 * count, 1), {static_cast<std::int64_t>(count), 2});
    const auto step = [&] {
      model.zero_grad();
      model(x).sum().backward();
    };
    if (fails_with<Error>(CallKind::thread, place, "worker threads", step)) step();
    EXPECT_EQ(model.module().bias.grad().to_vector<double>(),
              std::vector<double>(2, static_cast<double>(count)));
  });
}

}  // namespace failing_calls_test
}  // namespace lockstep
