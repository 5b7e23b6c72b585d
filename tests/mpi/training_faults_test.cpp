// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>

#include "io/training.hpp"
#include "mpi/failing_calls.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace mpi_test {

// One of its buckets is so large that ranks share out the sum.
struct Net {
  ls::nn::Linear in{40, 60};
  ls::nn::BatchNorm1d norm{60};  // its buffers are those of rank 0 before each forward
  ls::nn::Linear out{60, 3};
  static constexpr std::size_t kBytes = 12 << 10;  // what its parameters take in one tensor

  ls::Tensor forward(const ls::Tensor& x) const { return out(norm(in(x))); }
};

class Training {
 public:
  explicit Training(const dist::ProcessGroup& group)
      : group_(group), model_(fixed_net(), group, {.bucket_cap_mb_list = {0.0005}}) {}

  float step(int number) {
    sgd_.zero_grad();
    const ls::Tensor x = ls::full({4, 40}, 0.1 * number);
    x.narrow(0, group_.rank() % 4, 1).fill_(number + group_.rank());
    const ls::Tensor y = model_(x);
    const ls::Tensor loss = (y * y).mean();
    loss.backward();
    sgd_.step();
    return loss.item<float>();
  }

 private:
  static Net fixed_net() {
    Net net;
    ls::testing::set_parameters(net, 1);
    return net;
  }

  const dist::ProcessGroup group_;
  ls::DistributedDataParallel<Net> model_;
  ls::optim::SGD sgd_{model_.parameters(), {.lr = 0.01, .momentum = 0.9}};
};

// What a rank's training has come to: the losses, the error that has ended it, if any, and the one
// that a further step of the same model ends with. Where there is no model, its place is taken by
// an operation of the group.
struct Trained {
  std::vector<float> losses;
  std::string error;
  std::string next;
  bool met = false;  // a call of this rank's has failed
};

// Call n of MPI's on the last rank fails, counted from where the model is made.
Trained train(int n) {
  const dist::ProcessGroup group = ls::mpi::process_group();
  const bool faulty = group.rank() == last_rank();
  const ls::Tensor next = ls::zeros({3});
  std::optional<Training> training;
  Trained trained;
  if (faulty) calls_before_failure = n;
  trained.error = error_text([&] {
    training.emplace(group);
    for (int step = 0; step < 2; ++step) trained.losses.push_back(training->step(step));
  });
  trained.met = calls_before_failure.exchange(-1) < 0 && faulty && n >= 0;
  trained.next = error_text(
      [&] { training ? (void)training->step(2) : (void)group.blocking().all_reduce(next); });
  return trained;
}

std::size_t allocated_bytes() {
  world().impl()->thread()->drain();  // which destroys groups
  return ls::memory_stats("cpu").allocated_bytes;
}

// Each call in turn: those of making the model, of its first step, after which it has other
// buckets, and of the second.
TEST(MpiOfSeveralRanks, ARankWhoseCallOfMpiFailsEndsATraining) {
  const ShortLastChance soon;
  const std::vector<float> expected = train(-1).losses;
  ASSERT_EQ(expected.size(), 2U);
  int places = 0;
  for (bool met = true; met; ++places) {
    SCOPED_TRACE(places);
    const std::size_t before = allocated_bytes();
    const Trained trained = train(places);
    std::vector<float> losses = expected;
    if (!trained.error.empty()) losses.resize(trained.losses.size());
    EXPECT_EQ(trained.losses, losses) << trained.error;
    met = tell_all(trained.met, false).met;
    if (!met) {
      EXPECT_EQ(trained.error + trained.next, "");
      EXPECT_EQ(allocated_bytes(), before);
    } else if (world().rank() == last_rank()) {
      EXPECT_NE(trained.error.find(" failed with code"), std::string::npos) << trained.error;
      EXPECT_NE(trained.next, "");
    } else {
      expect_last_rank_in(trained.error.empty() ? trained.next : trained.error, trained.next);
    }
    // MPI may use what one operation was given for ever: at most what all parameters take.
    EXPECT_LE(allocated_bytes(), before + Net::kBytes);
  }
  if (world().rank() == last_rank()) std::cout << places - 1 << " calls\n";
  EXPECT_GT(places, 50);
}

}  // namespace mpi_test
