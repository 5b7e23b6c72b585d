// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files.hpp"
#include "io/training.hpp"
#include "support/count_operator_new.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace random_state_test {

using testing::first_devices;
using testing::set_parameters;
using testing::SmallNet;
using testing::TempDirectory;
using testing::throws;
using testing::train;
using testing::values_of;

TEST(RandomState, NumbersGoOnWhereTheyWere) {
  manual_seed(3);
  default_generator().normal();
  (void)dropout(ones({5}, {.device = "cpu:1"}));
  const StateDict state = io::random_state();
  const auto draw = [] {
    return std::vector{rand({4}).to_vector<float>(),
                       dropout(ones({50}, {.device = "cpu:1"})).to_vector<float>(),
                       dropout(ones({50})).to_vector<float>()};
  };
  const auto expected = draw();
  manual_seed(4);
  EXPECT_NE(draw(), expected);
  io::set_random_state(state);
  EXPECT_EQ(draw(), expected);
  io::set_random_state({state[1], state[0]});
  EXPECT_EQ(draw(), expected);
}

TEST(RandomState, OfAGeneratorIsWholeOrNotGivenAtAll) {
  Generator generator(5);
  const std::string whole = generator.state();
  std::uint64_t n = 0;
  do {
    std::optional<std::string> state;
    {
      const testing::OutOfMemory scarce(++n, false);
      try {
        state = generator.state();
      } catch (const std::bad_alloc&) {
      }
    }
    EXPECT_TRUE(!state || *state == whole) << "allocation " << n;
    EXPECT_NE(state.has_value(), testing::OutOfMemory::has_struck());
  } while (testing::OutOfMemory::has_struck());
  EXPECT_GT(n, 3U);
}

TEST(RandomState, AGeneratorOfItsOwnHasOne) {
  Generator generator(5);
  const StateDict state = io::random_state(generator);
  const std::uint64_t expected = generator.bits();
  io::set_random_state(state, generator);
  EXPECT_EQ(generator.bits(), expected);
}

TEST(RandomState, WhatIsNoStateIsRefusedAndChangesNothing) {
  manual_seed(3);
  const StateDict state = io::random_state();
  const auto refused = [&](std::size_t which, const Tensor& tensor) {
    StateDict damaged = state;
    damaged[which].tensor = tensor;
    return throws<ValueError>([&] { io::set_random_state(damaged); }, "");
  };
  EXPECT_TRUE(refused(0, Tensor()));
  EXPECT_TRUE(refused(0, tensor({1.0F})));
  EXPECT_TRUE(refused(0, tensor<std::uint8_t>({'1', ' ', '2'})));
  EXPECT_TRUE(refused(0, zeros({0}, {.dtype = Dtype::u8})));
  EXPECT_TRUE(refused(1, tensor<std::int64_t>({1, 2})));
  EXPECT_TRUE(refused(1, zeros({0}, {.dtype = Dtype::i64})));
  EXPECT_TRUE(refused(1, tensor<std::int64_t>({1, 9, 0, 0, 0})));
  EXPECT_TRUE(refused(1, tensor<std::int64_t>({1, 0, -2, 0, 0})));
  for (const int bit : {20, 32}) {
    EXPECT_TRUE(refused(1, tensor<std::int64_t>({1, 0, std::int64_t{1} << bit, 0, 0})));
  }
  // The engine's words are all 0, or the place behind them is none.
  const auto text = [](const std::string& words) {
    return from_values(std::span(reinterpret_cast<const std::uint8_t*>(words.data()), words.size()),
                       {static_cast<std::int64_t>(words.size())});
  };
  const auto* const begin =
      reinterpret_cast<const char*>(state[0].tensor.const_data_ptr<std::uint8_t>());
  const std::string words(begin, static_cast<std::size_t>(state[0].tensor.numel()));
  EXPECT_TRUE(refused(0, text(words.substr(0, words.rfind(' ')) + " 313")));
  std::string zeros_alone;
  for (int i = 0; i < 312; ++i) zeros_alone += "0 ";
  EXPECT_TRUE(refused(0, text(zeros_alone + "312")));
  EXPECT_TRUE(throws<ValueError>([&] { io::set_random_state({}); }, "no generator"));
  EXPECT_EQ(values_of(io::random_state()), values_of(state));
}

// Batches and dropout are random. Six steps at once, against three, a checkpoint, and three more of
// fresh objects, with other numbers drawn in between.
template <class Optimizer, class Make, class Options>
void expect_same_bits(const Make& make, const Options& options) {
  const TempDirectory folder;
  const auto random_batch = [](std::int64_t) { return randn({4, 3}); };
  std::vector<StateDict> results;
  for (const bool stop : {false, true}) {
    manual_seed(11);
    auto model = make();
    set_parameters(model, 1);
    Optimizer optimizer{parameters(model), options};
    train(model, optimizer, 0, stop ? 3 : 6, random_batch);
    if (stop) {
      io::save_checkpoint(folder / "last", {.model = state_dict(model),
                                            .optimizer = optimizer.state_dict(),
                                            .random = io::random_state()});
      train(model, optimizer, 3, 4, random_batch);
    } else {
      results.push_back(state_dict(model));
    }
  }
  manual_seed(12);
  auto model = make();
  Optimizer optimizer{parameters(model)};
  const io::Checkpoint last = io::load_checkpoint(folder / "last");
  load_state_dict(model, last.model);
  optimizer.load_state_dict(last.optimizer);
  io::set_random_state(last.random);
  train(model, optimizer, 3, 6, random_batch);
  EXPECT_EQ(values_of(state_dict(model)), values_of(results.front()));
}

TEST(RandomState, TrainingGoesOnWithTheSameBits) {
  const auto one = [] { return SmallNet{.dropped = 0.5}; };
  const auto two = [] { return DataParallel{SmallNet{.dropped = 0.5}, first_devices(2)}; };
  expect_same_bits<optim::SGD>(one, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  expect_same_bits<optim::Adam>(one, optim::AdamOptions{.lr = 0.1});
  expect_same_bits<optim::SGD>(two, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  expect_same_bits<optim::Adam>(two, optim::AdamOptions{.lr = 0.1});
}

}  // namespace random_state_test
}  // namespace lockstep
