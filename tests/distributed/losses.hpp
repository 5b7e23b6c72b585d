// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/fashion_mnist.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/random.hpp>

#include "../../examples/models/image_models.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

// The examples' networks, trained for 20 steps on real images by one process or by the ranks of a
// group: the losses have to be the same, whatever carries the gradients.
namespace lockstep::testing {

inline bool has_images() { return std::filesystem::exists(data::kFashionMnistDirectory); }
inline constexpr const char* kNeedsImages = "needs Fashion-MNIST (Debian: dataset-fashion-mnist)";

// One training: the names are parts of tests' names.
struct LossCase {
  const char* network;  // mlp, cnn
  Dtype dtype;
  const char* optimizer;  // sgd, adam

  std::string name() const {
    return std::string(network) + (dtype == Dtype::f64 ? "_f64_" : "_f32_") + optimizer;
  }
  // How far losses may lie apart that were summed up in another order, relative to the loss.
  double tolerance() const { return dtype == Dtype::f64 ? 1e-9 : 1e-4; }
};

inline std::vector<LossCase> loss_cases(const std::string& network) {
  const char* const name = network == "cnn" ? "cnn" : "mlp";
  std::vector<LossCase> cases;
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    for (const char* optimizer : {"sgd", "adam"}) cases.push_back({name, dtype, optimizer});
  }
  return cases;
}

// The mean loss over the batch in each step.
using Losses = std::vector<double>;

namespace losses {

// With a sanitizer each takes fifty times as long.
constexpr std::int64_t kSteps = kSanitizer ? 3 : 20;
constexpr std::int64_t kBatch = 12;  // for 1, 2, 3 and 4 ranks

// This rank's part of each batch is trained on; `call` is the model, `mean` takes the ranks' mean.
template <class Optimizer, class Call, class Mean>
Losses train(Optimizer optimizer, Dtype dtype, int rank, int size, const Call& call,
             const Mean& mean) {
  const data::FashionMnist images(data::kFashionMnistDirectory, false, {.dtype = dtype});
  std::vector<std::int64_t> rows(static_cast<std::size_t>(kBatch / size));
  std::iota(rows.begin(), rows.end(), rank * (kBatch / size));
  Losses result;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const auto [input, labels] = images.get_batch(rows);
    const Tensor scores = call(input);
    const Tensor loss = cross_entropy(scores, labels.to(scores.device()));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    result.push_back(mean(loss.detach().clone()));
    for (std::int64_t& row : rows) row += kBatch;
  }
  return result;
}

// Steps are small: where f32 rounds two nearly equal pixels the other way round, max_pool takes the
// other one, and Adam makes much of a gradient that is nothing.
template <class... Args>
Losses with_optimizer(const LossCase& wanted, const std::vector<Parameter>& parameters,
                      const Args&... args) {
  if (std::string(wanted.optimizer) == "adam") {
    return train(optim::Adam{parameters, {.lr = 2e-4}}, wanted.dtype, args...);
  }
  return train(optim::SGD{parameters, {.lr = 0.02, .momentum = 0.9}}, wanted.dtype, args...);
}

template <class Make>
Losses of_one(const LossCase& wanted, const Make& make) {
  manual_seed(1);
  auto net = make(wanted.dtype);
  return with_optimizer(
      wanted, parameters(net), 0, 1, [&net](const Tensor& x) { return net.forward(x); },
      [](const Tensor& loss) { return loss.item(); });
}

template <class Make>
Losses of_group(const LossCase& wanted, const Make& make, const distributed::ProcessGroup& group) {
  manual_seed(static_cast<std::uint64_t>(group.rank()) + 1);  // rank 0's weights become everybody's
  DistributedDataParallel model{make(wanted.dtype), group};
  return with_optimizer(
      wanted, model.parameters(), group.rank(), group.size(),
      [&model](const Tensor& x) { return model(x); },
      [&group](const Tensor& loss) {
        group.all_reduce(loss, distributed::ReduceOp::avg).wait();
        return loss.item();
      });
}

}  // namespace losses

// One process, with the whole of each batch.
inline Losses losses_of_one(const LossCase& wanted) {
  if (std::string(wanted.network) == "cnn") return losses::of_one(wanted, example::make_cnn);
  return losses::of_one(wanted, example::make_mlp);
}
// The same batches, divided among the ranks of a group, all of which call this.
inline Losses losses_of(const LossCase& wanted, const distributed::ProcessGroup& group) {
  if (std::string(wanted.network) == "cnn") {
    return losses::of_group(wanted, example::make_cnn, group);
  }
  return losses::of_group(wanted, example::make_mlp, group);
}

inline void expect_same_losses(const Losses& got, const Losses& expected, const LossCase& wanted) {
  ASSERT_EQ(got.size(), expected.size());
  if (got.size() > 3) {
    EXPECT_LT(expected.back(), expected.front()) << wanted.name() << " learns nothing";
  }
  for (std::size_t step = 0; step < got.size(); ++step) {
    EXPECT_NEAR(got[step], expected[step], wanted.tolerance() * std::abs(expected[step]))
        << wanted.name() << ", step " << step;
  }
}

}  // namespace lockstep::testing
