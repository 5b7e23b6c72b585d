// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/optim/sparse_adam.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "optim/parameters.hpp"
#include "support/count_operator_new.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace optim_out_of_memory_walk_test {

using testing::fails_at;
using testing::OutOfMemory;
using testing::Place;
using testing::Values;
using testing::values_of;
using testing::walk_places;

// A first step that finds no memory has not been: what the optimiser tells of its state is whole,
// and the next step is the first.
template <class Optimizer>
void walk_first_steps(const char* name, const auto& options, const Tensor& gradient) {
  const auto values_after = [&](const auto& step) {
    const Parameter parameter(ones({3, 2}, {.dtype = Dtype::f64}));
    parameter.set_grad(gradient);
    Optimizer optimizer{{parameter}, options};
    empty_cache(Device());  // what is kept does not fail
    step(optimizer);
    optimizer.step();
    return values_of(parameter);
  };
  const Values expected = values_after([](Optimizer& optimizer) { optimizer.step(); });
  const auto visit = [&](Place place) {
    const Values values = values_after([place](Optimizer& optimizer) {
      if (!fails_at(place, [&] { optimizer.step(); })) return;
      for (const auto& [entry, tensor] : optimizer.state_dict()) {
        EXPECT_TRUE(tensor.defined()) << entry;
      }
      optimizer.step();
    });
    EXPECT_EQ(values, expected);
  };
  walk_places(name, "memory", 1, &OutOfMemory::has_struck, visit);
}

TEST(OutOfMemoryWalk, AFirstStepOfAnOptimizer) {
  const Tensor dense = full({3, 2}, 0.5, {.dtype = Dtype::f64});
  const Tensor sparse = sparse_coo_tensor(from_values<std::int64_t>({2, 0}, {1, 2}),
                                          full({2, 2}, 0.5, {.dtype = Dtype::f64}), {3, 2});
  walk_first_steps<optim::SGD>(
      "SGD", optim::SGDOptions{.lr = 0.5, .momentum = 0.5, .dampening = 0.5}, dense);
  walk_first_steps<optim::Adam>("Adam", optim::AdamOptions{.lr = 0.5}, dense);
  walk_first_steps<optim::SparseAdam>("SparseAdam", optim::SparseAdamOptions{.lr = 0.5}, sparse);
}

TEST(OutOfMemoryWalk, AGroupThatFindsNoMemoryIsNotAdded) {
  walk_places("add_param_group", "memory", 1, &OutOfMemory::has_struck, [](Place place) {
    optim::SGD sgd{{Parameter(ones({1}))}, {.lr = 1}};
    const std::size_t entries = sgd.state_dict().size();
    const optim::SGDGroup group{.params = {Parameter(ones({1})), Parameter(ones({1}))}};
    if (fails_at(place, [&] { sgd.add_param_group(group); })) {
      EXPECT_EQ(sgd.group_count(), 1U);
      EXPECT_EQ(sgd.parameters().size(), 1U);
      EXPECT_EQ(sgd.state_dict().size(), entries);
      sgd.add_param_group(group);
    }
    EXPECT_EQ(sgd.state_dict().size(), 2 * entries);
  });
}

}  // namespace optim_out_of_memory_walk_test
}  // namespace lockstep
