// SPDX-License-Identifier: Apache-2.0

#include "data/files.hpp"
#include "examples/program.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

// The training program of DistributedDataParallel, alone and with a thread a device, on a data set
// that takes no time. tests/mpi runs it under mpirun.
namespace train_distributed_test {

using lockstep::testing::contains;
using lockstep::testing::idx_header;
using lockstep::testing::lines_of;
using lockstep::testing::ProgramResult;
using lockstep::testing::read_file;
using lockstep::testing::run_example;
using lockstep::testing::TempDirectory;
using lockstep::testing::write_file;

class TrainDistributed : public ::testing::Test {
 protected:
  TrainDistributed() {
    write("train", 60);
    write("t10k", 24);
  }

  // Each class is a bar of its own.
  void write(const std::string& part, std::uint32_t count) const {
    std::string images = idx_header(8, {count, 28, 28});
    std::string labels = idx_header(8, {count});
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t label = i % 10;
      std::string image(784, static_cast<char>(i % 7));
      image.replace(label * 56, 56, 56, static_cast<char>(200));
      images += image;
      labels.push_back(static_cast<char>(label));
    }
    write_file(directory_ / (part + "-images-idx3-ubyte"), images);
    write_file(directory_ / (part + "-labels-idx1-ubyte"), labels);
  }

  ProgramResult train(const std::string& arguments) const {
    return run_example("train_distributed --data " + directory_.path().string() + " --metrics " +
                       (directory_ / "metrics.csv").string() + " --batch-size 12 " + arguments);
  }

  // The losses of the steps in the metrics file.
  std::vector<double> losses(const std::string& arguments) const {
    const ProgramResult result = train(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<double> losses;
    for (const std::string& line : lines_of(read_file(directory_ / "metrics.csv"))) {
      std::istringstream row(line);
      std::string step;
      std::string epoch;
      std::string loss;
      std::getline(row, step, ',');
      std::getline(row, epoch, ',');
      std::getline(row, loss, ',');
      if (step != "step" && !loss.empty()) losses.push_back(std::stod(loss));
    }
    return losses;
  }

  const TempDirectory directory_;
};

TEST_F(TrainDistributed, ThreadsLearnWhatOneProcessDoes) {
  const std::size_t steps = lockstep::testing::kSanitizer ? 6 : 10;
  const std::string rest = " --epochs 2 --dtype f64 --max-steps " + std::to_string(steps);
  const std::vector<double> alone = losses(rest);
  ASSERT_EQ(alone.size(), steps);
  for (const char* devices : {"--devices 2", "--devices cpu:0,cpu:0,cpu:0"}) {
    const std::string arguments = devices + rest;
    const std::vector<double> together = losses(arguments);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(together[i], alone[i], 1e-9 * alone[i]) << devices << " step " << i;
    }
    EXPECT_EQ(losses(arguments), together);
  }
}

TEST_F(TrainDistributed, OneRankTellsHowItGoes) {
  const ProgramResult alone = train("--epochs 1");
  EXPECT_TRUE(contains(alone.out, "epoch 1  step 5/5  loss ", "test accuracy ", "on 1 ranks"));
  const ProgramResult two = train("--epochs 1 --devices 2");
  EXPECT_EQ(two.err, "");
  EXPECT_TRUE(contains(two.out, "epoch 1  step 5/5  loss ", "test accuracy ", "on 2 ranks"));
  EXPECT_EQ(two.out.find("test accuracy"), two.out.rfind("test accuracy"));
  EXPECT_EQ(losses("--epochs 1 --devices 2 --max-steps 3").size(), 3U);
}

TEST_F(TrainDistributed, ABatchThatCannotBeDividedIsABadCommandLine) {
  const ProgramResult result = train("--devices 5");
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.err, "--batch-size needs a multiple of the 5 ranks"));
}

}  // namespace train_distributed_test
