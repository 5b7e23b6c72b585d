// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace sparse_test {

using testing::f64;
using testing::first_devices;
using testing::throws;
using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

Tensor sparse(const Numbers& rows, const Values& values, Device device) {
  const auto count = static_cast<std::int64_t>(rows.size());
  return sparse_coo_tensor(from_values(rows, {1, count}, device), f64(values, {count, 2}, device),
                           {4, 2});
}

TEST(Comm, M05TheSumOfSparseTensorsListsTheRowsOfAll) {
  const std::vector<Tensor> inputs = {sparse({3, 1}, {1, 2, 3, 4}, "cpu:0"),
                                      sparse({1}, {10, 20}, "cpu:1"), sparse({}, {}, "cpu:2")};
  for (const char* target : {"cpu:0", "cpu:1", "cpu:2"}) {
    const Tensor sum = comm::reduce_add(inputs, Device(target));
    EXPECT_EQ(sum.device(), Device(target));
    const Tensor listed = sum.coalesce();
    EXPECT_EQ(listed.indices().to_vector<std::int64_t>(), (Numbers{1, 3}));
    EXPECT_EQ(listed.values().to_vector<double>(), (Values{13, 24, 1, 2}));
  }
}

TEST(Comm, M05TheSumOfSparseAndDenseTensorsIsDense) {
  const Tensor dense = ones({4, 2}, {.dtype = Dtype::f64, .device = "cpu:1"});
  const Tensor sum = comm::reduce_add({sparse({3}, {1, 2}, "cpu:0"), dense}, Device("cpu:0"));
  EXPECT_EQ(sum.to_vector<double>(), (Values{1, 1, 1, 1, 1, 1, 2, 3}));
}

TEST(Comm, M06SparseTensorsAmongOthersAreSummedAlone) {
  const auto of_device = [](Device device) {
    return std::vector<Tensor>{ones({3}, {.dtype = Dtype::f64, .device = device}),
                               sparse({2}, {1, 2}, device),
                               full({2}, 5, {.dtype = Dtype::f64, .device = device})};
  };
  const std::vector<Tensor> sums =
      comm::reduce_add_coalesced({of_device("cpu:0"), of_device("cpu:1")}, Device("cpu:1"));
  EXPECT_EQ(sums[0].to_vector<double>(), (Values{2, 2, 2}));
  EXPECT_EQ(sums[1].coalesce().values().to_vector<double>(), (Values{2, 4}));
  EXPECT_EQ(sums[2].to_vector<double>(), (Values{10, 10}));
}

TEST(Comm, SparseTensorsAreRefusedElsewhere) {
  const Tensor tensor = sparse({2}, {1, 2}, "cpu:0");
  const std::vector<Device> devices = first_devices(2);
  const char* const message = "expected a dense tensor, got a sparse one of shape [4, 2] and f64";
  EXPECT_TRUE(throws<ValueError>([&] { comm::broadcast(tensor, devices); }, message));
  EXPECT_TRUE(throws<ValueError>([&] { comm::broadcast_coalesced({tensor}, devices); }, message));
  EXPECT_TRUE(throws<ValueError>([&] { comm::scatter(tensor, devices); }, message));
  EXPECT_TRUE(throws<ValueError>([&] { comm::gather({tensor, tensor}, 0, devices[0]); }, message));
}

// A table of which few rows are used, and a layer on top of it.
struct Words {
  nn::Embedding table;
  Parameter weight{f64({1, 2, 3}, {1, 3})};
  Tensor forward(const Tensor& words) const { return linear(table(words), weight, {}); }
};

Words make_words(bool sparse) {
  Words model{.table = {6, 3, {.padding_idx = 2, .sparse = sparse, .dtype = Dtype::f64}}};
  const NoGradGuard guard;
  model.table.weight.copy_(arange(18, {.dtype = Dtype::f64}).reshape({6, 3}));
  return model;
}

TEST(DataParallel, D05SparseGradientsOfReplicasAreTheDenseOnes) {
  const Tensor words = from_values<std::int64_t>({5, 0, 0, 2, 5, 1, 0, 5, 2}, {9});
  for (const std::vector<Device>& devices : {first_devices(1), first_devices(2), first_devices(4),
                                             std::vector<Device>{"cpu:1", "cpu:1"}}) {
    std::vector<Values> seen[2];
    for (const bool sparse : {false, true}) {
      DataParallel model{make_words(sparse), devices};
      const Parameter& weight = model.module().table.weight;
      optim::SGD sgd{model.parameters(), {.lr = 0.125}};
      for (int step = 0; step < 3; ++step) {
        if (step != 1) sgd.zero_grad();  // or the second gradient is added to the first
        model(words).sum().backward();
        EXPECT_EQ(weight.grad().is_sparse(), sparse);
        EXPECT_EQ(weight.grad().device(), devices[0]);
        seen[sparse].push_back(weight.grad().to_dense().to_vector<double>());
        sgd.step();
        seen[sparse].push_back(weight.to_vector<double>());
      }
    }
    EXPECT_EQ(seen[1], seen[0]) << devices.size();
  }
}

// The second replica alone uses the table.
struct OnOneDevice {
  nn::Embedding table{4, 2, {.sparse = true, .dtype = Dtype::f64}};
  Parameter weight{f64({1}, {1})};
  Tensor forward(const Tensor& words) const {
    const Tensor ones = full({1}, 1, {.dtype = Dtype::f64, .device = weight.device()}) * weight;
    return weight.device() == Device("cpu:1") ? table(words).sum().reshape({1}) * ones : ones;
  }
};

TEST(DataParallel, ASparseGradientOfOneReplicaComesHome) {
  DataParallel model{OnOneDevice{}, first_devices(2)};
  model(from_values<std::int64_t>({3, 1}, {2})).sum().backward();
  const Tensor grad = model.module().table.weight.grad();
  EXPECT_EQ(grad.device(), Device("cpu:0"));
  EXPECT_EQ(grad.coalesce().indices().to_vector<std::int64_t>(), (Numbers{1}));
}

TEST(AccumulateGrad, ADenseGradientMakesASparseOneDense) {
  nn::Embedding table{4, 2, {.sparse = true, .dtype = Dtype::f64}};
  table(from_values<std::int64_t>({3, 1, 3}, {3})).sum().backward();
  ASSERT_TRUE(table.weight.grad().is_sparse());
  table.weight.sum().backward();
  EXPECT_EQ(table.weight.grad().to_vector<double>(), (Values{1, 1, 2, 2, 1, 1, 3, 3}));
  table(from_values<std::int64_t>({0}, {1})).sum().backward();
  EXPECT_EQ(table.weight.grad().to_vector<double>(), (Values{2, 2, 2, 2, 1, 1, 3, 3}));
}

}  // namespace sparse_test
}  // namespace lockstep
