// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// What goes between GPUs, under many random schedules: the values must be right, and the simulator
// must not find an access that is not in order. By NCCL, where that is there, and by copies.
namespace lockstep {
namespace comm_seeds_test {

using Values = std::vector<float>;

Values values_of(const Tensor& tensor) {
  const Tensor host = tensor.to("cpu");
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

Tensor counting(const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < numel(shape); ++i) values.push_back(static_cast<float>(i % 101));
  return from_values(values, shape);
}

class CommUnderEachSeed : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::vector<Device> gpus() const {
    std::vector<Device> devices;
    for (std::size_t i = 0; i < GetParam(); ++i) {
      devices.emplace_back(DeviceType::cuda, static_cast<int>(i));
    }
    return devices;
  }

  // Calls body once with NCCL, if there is, and once without, under every seed.
  template <class Body>
  static void both_ways(const Body& body) {
    for (const bool nccl : {true, false}) {
      if (nccl && distributed::detail::nccl_collectives.load() == nullptr) continue;
      SCOPED_TRACE(nccl ? "by NCCL" : "by copies");
      std::optional<testing::WithoutNccl> without;
      if (!nccl) without.emplace();
      testing::under_seeds(testing::kManySeeds, body);
    }
  }
};

// Memory is given back as soon as nothing more is issued that uses it, and taken again.
TEST_P(CommUnderEachSeed, EachPrimitiveGivesWhatItShould) {
  const auto devices = gpus();
  const auto count = static_cast<std::int64_t>(devices.size());
  const Tensor host = counting({3 * count, 5});
  const Values rows = values_of(host);
  Values sums = values_of(counting({5}));
  for (float& each : sums) each *= static_cast<float>(count * (count + 1) / 2);

  both_ways([&] {
    std::vector<Tensor> chunks = comm::scatter(host, devices);
    std::vector<Tensor> copies = comm::broadcast(counting({5}).to(devices.back()), devices);
    std::vector<Tensor> products;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      chunks[i] = chunks[i] + copies[i];
      products.push_back(copies[i] * static_cast<float>(i + 1));
    }
    copies.clear();
    const Tensor sum = comm::reduce_add(products, devices.front());
    products.clear();
    const Tensor whole = comm::gather(chunks, 0, devices.back());
    chunks.clear();
    EXPECT_EQ(values_of(sum), sums);
    const Values got = values_of(whole);
    ASSERT_EQ(got.size(), rows.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], rows[i] + static_cast<float>(i % 5));
    }
  });
}

TEST_P(CommUnderEachSeed, DataParallelTrains) {
  const auto devices = gpus();
  const auto count = static_cast<std::int64_t>(devices.size());
  const auto step = [&](const std::vector<Device>& on) {
    nn::Linear linear(4, 3);
    linear.weight.set_data(counting({3, 4}));
    linear.bias.set_data(counting({3}));
    DataParallel model(linear, on);
    sum(model(counting({3 * count, 4}))).backward();
    return std::vector<Values>{values_of(linear.weight.grad()), values_of(linear.bias.grad())};
  };
  const std::vector<Values> expected = step({"cpu"});
  both_ways([&] { EXPECT_EQ(step(devices), expected); });
}

INSTANTIATE_TEST_SUITE_P(Devices, CommUnderEachSeed, ::testing::Values(2, 4));

}  // namespace comm_seeds_test
}  // namespace lockstep
