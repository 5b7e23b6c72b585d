// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/files.hpp"
#include "io/training.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

namespace lockstep {
namespace checkpoint_test {

using testing::batch;
using testing::first_devices;
using testing::set_parameters;
using testing::SmallNet;
using testing::TempDirectory;
using testing::throws;
using testing::train;
using testing::values_of;

const optim::SGDOptions kSgd{.lr = 0.1, .momentum = 0.9};
const optim::AdamOptions kAdam{.lr = 0.1};

// Six steps at once, against three, a checkpoint, and three more of fresh objects that began
// elsewhere.
template <class Optimizer, class Make, class Options>
void expect_same_bits(const Make& make, const Options& options) {
  const TempDirectory folder;
  auto whole = make();
  set_parameters(whole, 1);
  Optimizer whole_optimizer{parameters(whole), options};
  train(whole, whole_optimizer, 0, 6, batch);
  {
    auto model = make();
    set_parameters(model, 1);
    Optimizer optimizer{parameters(model), options};
    train(model, optimizer, 0, 3, batch);
    io::save_checkpoint(
        folder / "last",
        {.model = state_dict(model), .optimizer = optimizer.state_dict(), .step = 3});
  }
  auto model = make();
  set_parameters(model, 2);
  Optimizer optimizer{parameters(model)};
  const io::Checkpoint last = io::load_checkpoint(folder / "last");
  load_state_dict(model, last.model);
  optimizer.load_state_dict(last.optimizer);
  train(model, optimizer, last.step, 6, batch);
  EXPECT_EQ(values_of(state_dict(model)), values_of(state_dict(whole)));
  EXPECT_EQ(values_of(optimizer.state_dict()), values_of(whole_optimizer.state_dict()));
}

TEST(Checkpoint, TrainingGoesOnWithTheSameBits) {
  const auto make = [] { return SmallNet{}; };
  expect_same_bits<optim::SGD>(make, kSgd);
  expect_same_bits<optim::Adam>(make, kAdam);
}

TEST(Checkpoint, DataParallelTrainingGoesOnWithTheSameBits) {
  const auto make = [] { return DataParallel{SmallNet{}, first_devices(2)}; };
  expect_same_bits<optim::SGD>(make, kSgd);
  expect_same_bits<optim::Adam>(make, kAdam);
}

TEST(Checkpoint, HoldsEveryPart) {
  const TempDirectory folder;
  optim::SGD sgd{std::vector{Parameter(tensor({1.0F}))}};
  optim::LRScheduler schedule{sgd, optim::StepLR{}};
  schedule.step();
  io::save_checkpoint(folder / "all", {.model = {{"w", tensor({1.0F})}, {"model.w", ones({2})}},
                                       .optimizer = sgd.state_dict(),
                                       .lr_scheduler = schedule.state_dict(),
                                       .random = {{"generator", tensor<std::uint8_t>({1})}},
                                       .epoch = 7,
                                       .step = -(std::int64_t{1} << 60),
                                       .metadata = {{"run", "a"}}});
  const io::Checkpoint all = io::load_checkpoint(folder / "all", "cpu:1");
  ASSERT_EQ(all.model.size(), 2U);
  EXPECT_EQ(all.model[0].name, "model.w");
  EXPECT_EQ(all.model[1].name, "w");
  EXPECT_EQ(all.model[1].tensor.device(), Device("cpu:1"));
  EXPECT_EQ(all.random.size(), 1U);
  EXPECT_EQ(all.epoch, 7);
  EXPECT_EQ(all.step, -(std::int64_t{1} << 60));
  EXPECT_EQ(all.metadata, (io::Metadata{{"run", "a"}}));
  optim::SGD fresh{std::vector{Parameter(tensor({1.0F}))}, {.lr = 5}};
  optim::LRScheduler again{fresh, optim::StepLR{}};
  fresh.load_state_dict(all.optimizer);
  again.load_state_dict(all.lr_scheduler);
  EXPECT_EQ(fresh.lr(), sgd.lr());
  EXPECT_EQ(again.last_epoch(), 1);
}

TEST(Checkpoint, PythonFindsTheWeightsByName) {
  const TempDirectory folder;
  io::save_checkpoint(folder / "file", {.model = state_dict(SmallNet{})});
  const io::SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.get_tensor("model.in.weight").sizes(), (Shape{8, 3}));
  EXPECT_EQ(file.metadata(),
            (io::Metadata{
                {"lockstep.checkpoint", "1"}, {"lockstep.epoch", "0"}, {"lockstep.step", "0"}}));
}

TEST(Checkpoint, ReservedMetadataIsRefused) {
  const TempDirectory folder;
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        io::save_checkpoint(folder / "file", {.metadata = {{"lockstep.x", "1"}}});
      },
      "\"lockstep.x\""));
  EXPECT_EQ(testing::files_in(folder.path()), 0);
}

TEST(Checkpoint, FilesThatAreNoneAreRefused) {
  const TempDirectory folder;
  const auto load = [&](const StateDict& dict, const io::Metadata& metadata) {
    io::save_file(dict, folder / "file", metadata);
    return [&] { io::load_checkpoint(folder / "file"); };
  };
  const auto numbers = [](const std::string& version, const std::string& epoch) {
    return io::Metadata{
        {"lockstep.checkpoint", version}, {"lockstep.epoch", epoch}, {"lockstep.step", "0"}};
  };
  const std::string name = (folder / "file").string();
  EXPECT_TRUE(throws<DataError>(load({}, {}), name, "no checkpoint of lockstep's"));
  EXPECT_TRUE(throws<DataError>(load({}, numbers("2", "0")), name, "version 2"));
  EXPECT_TRUE(throws<DataError>(load({}, numbers("1", "3x")), name, "\"3x\": expected a number"));
  EXPECT_TRUE(throws<DataError>(load({}, numbers("1", "")), name, "lockstep.epoch"));
  EXPECT_TRUE(throws<DataError>(load({{"w", ones({1})}}, numbers("1", "0")), name, "\"w\""));
}

}  // namespace checkpoint_test
}  // namespace lockstep
