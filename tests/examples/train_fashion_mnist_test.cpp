// SPDX-License-Identifier: Apache-2.0

#include "data/files.hpp"
#include "examples/fashion_mnist_training.hpp"
#include "examples/program.hpp"
#include "profile/json.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// The training program on a small data set.
namespace {

using lockstep::testing::contains;
using lockstep::testing::lines_of;
using lockstep::testing::ProgramResult;
using lockstep::testing::read_file;
using lockstep::testing::run_example;
using lockstep::testing::write_file;

class TrainFashionMnist : public lockstep::testing::FashionMnistTraining {};

TEST_F(TrainFashionMnist, PrintsProgressAndAccuracyAndWritesMetrics) {
  const ProgramResult result = train("--devices 2 --epochs 2 --batch-size 30");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  // No terminal, no bar.
  EXPECT_EQ(result.out.find('\r'), std::string::npos);
  EXPECT_TRUE(contains(result.out, "epoch 1  step 4/4  loss ", " images/s\n",
                       "epoch 1  test accuracy 0.", "epoch 2  test accuracy 0."));

  const std::vector<Row> table = rows();
  ASSERT_EQ(table.size(), 1U + 2 * (4 + 1));
  EXPECT_EQ(table[0], (Row{"step", "epoch", "loss", "images_per_second", "test_accuracy"}));
  EXPECT_EQ(table[4][0], "4");
  EXPECT_EQ(table[4][1], "1");
  EXPECT_GT(std::stod(table[4][3]), 0);
  EXPECT_EQ(table[4][4], "");
  EXPECT_EQ(table[10][0], "8");
  EXPECT_EQ(table[10][1], "2");
  EXPECT_EQ(table[10][2], "");
  EXPECT_GE(std::stod(table[10][4]), 0);
  EXPECT_LE(std::stod(table[10][4]), 1);
}

TEST_F(TrainFashionMnist, DrawsABarOnATerminal) {
  const lockstep::testing::Terminal terminal;
  EXPECT_EQ(train("--epochs 1 --batch-size 25 >" + terminal.name()).status, 0);
  const std::string screen = terminal.read();
  EXPECT_TRUE(contains(screen, "\repoch 1 [==============================] 4/4  loss ", " images/s",
                       "\nepoch 1  test accuracy "));
  EXPECT_FALSE(contains(screen, "  step "));
}

TEST_F(TrainFashionMnist, Learns) {
  const ProgramResult result = train("--devices 2 --epochs 8 --batch-size 10");
  EXPECT_TRUE(contains(result.out, "epoch 8  test accuracy 1.0000"));
}

TEST_F(TrainFashionMnist, TheSameSeedAndDevicesGiveTheSameBits) {
  const std::string arguments = "--devices 2 --epochs 2 --batch-size 30 --seed 7";
  const std::vector<double> first = losses(arguments);
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(losses(arguments), first);
  EXPECT_NE(losses("--devices 2 --epochs 2 --batch-size 30 --seed 8"), first);
}

TEST_F(TrainFashionMnist, EveryNumberOfDevicesGivesTheSameLosses) {
  struct Case {
    const char* dtype;
    double tolerance;
  };
  std::vector<Case> cases{{"f64", 1e-9}, {"f32", 1e-3}};
  if (lockstep::testing::kSanitizer) cases = {cases[lockstep::testing::kFirstShare]};
  for (const Case& wanted : cases) {
    const std::size_t steps = lockstep::testing::kSanitizer ? 2 : 12;
    const std::string rest = std::string(" --epochs 4 --batch-size 40 --dtype ") + wanted.dtype +
                             " --max-steps " + std::to_string(steps);
    const std::vector<double> one = losses("--devices 1" + rest);
    ASSERT_EQ(one.size(), steps);
    for (const char* devices : {"--devices 2", "--devices 3"}) {
      const std::vector<double> several = losses(devices + rest);
      ASSERT_EQ(several.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(several[i], one[i], wanted.tolerance * std::abs(one[i]))
            << devices << " step " << i << " in " << wanted.dtype;
      }
    }
  }
}

// On the real images, with the program's own settings.
TEST_F(TrainFashionMnist, FiftyStepsOnTheRealImagesAgreeForEveryNumberOfDevices) {
  const std::filesystem::path real = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(real)) {
    GTEST_SKIP() << "lacks the images in " << real << " (Debian package dataset-fashion-mnist)";
  }
  struct Case {
    const char* dtype;
    double tolerance;
  };
  for (const Case& wanted : {Case{"f64", 1e-9}, Case{"f32", 1e-3}}) {
    const std::string rest = " --data " + real.string() + " --max-steps 50 --dtype " + wanted.dtype;
    const std::vector<double> one = losses("--devices 1" + rest);
    ASSERT_EQ(one.size(), 50U);
    for (const char* devices : {"--devices 2", "--devices 3"}) {
      const std::vector<double> several = losses(devices + rest);
      ASSERT_EQ(several.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(several[i], one[i], wanted.tolerance * std::abs(one[i]))
            << devices << " step " << i << " in " << wanted.dtype;
      }
    }
  }
  const std::string again = "--devices 2 --data " + real.string() + " --max-steps 50";
  EXPECT_EQ(losses(again), losses(again));
}

// BatchNorm takes its statistics over all devices.
TEST_F(TrainFashionMnist, EveryNumberOfDevicesGivesTheSameLossesOfTheOtherModels) {
  for (const std::string arch : {"resnet", "mlp"}) {
    const std::size_t steps = lockstep::testing::kSanitizer ? 2 : 20;
    const std::string rest = " --epochs 5 --batch-size 25 --dtype f64 --arch " + arch +
                             " --max-steps " + std::to_string(steps);
    const std::vector<double> one = losses("--devices 1" + rest);
    ASSERT_EQ(one.size(), steps);
    for (const char* devices : {"--devices 2", "--devices 3"}) {
      const std::vector<double> several = losses(devices + rest);
      ASSERT_EQ(several.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(several[i], one[i], 1e-9 * std::abs(one[i]))
            << devices << " step " << i << " of " << arch;
      }
    }
  }
}

// The second epoch of a run that was stopped behind the first one, against that of a whole run:
// all that training computes is in the file.
TEST_F(TrainFashionMnist, ResumingGivesTheSameBits) {
  for (const std::string arch : {"mlp", "cnn", "resnet"}) {
    const std::string rest = " --devices 2 --epochs 2 --batch-size 30 --arch " + arch;
    const std::string whole = (directory_ / "whole.safetensors").string();
    const std::string half = (directory_ / "half.safetensors").string();
    std::vector<double> all = losses("--save " + whole + rest);
    ASSERT_EQ(all.size(), 8U);
    EXPECT_EQ(losses("--max-steps 4 --save " + half + rest).size(), 4U);
    EXPECT_NE(read_file(half), read_file(whole));
    all.erase(all.begin(), all.begin() + 4);
    EXPECT_EQ(losses("--resume " + half + " --save " + half + rest), all) << arch;
    EXPECT_TRUE(read_file(half) == read_file(whole)) << arch;
  }
}

TEST_F(TrainFashionMnist, SaysInOneLineWhatCannotBeResumedOrSaved) {
  const std::string small = " --devices 1 --epochs 1 --batch-size 50 ";
  const std::string file = (directory_ / "mlp.safetensors").string();
  ASSERT_EQ(train("--arch mlp --save " + file + small).status, 0);
  write_file(directory_ / "cut.safetensors", read_file(file).substr(0, 1000));
  struct Case {
    std::string arguments;
    std::string reason;
  };
  for (const Case& wanted :
       {Case{"--resume " + file, file + " holds another model (mlp) than this one (cnn)"},
        Case{"--resume /nowhere/x", "/nowhere/x"},
        Case{"--resume " + (directory_ / "cut.safetensors").string(), "cut.safetensors: truncated"},
        Case{"--save /nowhere/x", "cannot save /nowhere/x: there is no folder /nowhere"},
        Case{"--timeline /nowhere/x", "cannot save /nowhere/x: there is no folder /nowhere"}}) {
    const ProgramResult result = train(wanted.arguments + small);
    EXPECT_EQ(result.status, 1) << wanted.arguments;
    EXPECT_EQ(result.out, "") << wanted.arguments;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_TRUE(contains(result.err, "train_fashion_mnist: ", wanted.reason));
  }
}

TEST_F(TrainFashionMnist, WritesATimelineOfTwentySteps) {
  const std::string file = (directory_ / "steps.json").string();
  const ProgramResult result = train("--devices 2 --epochs 1 --batch-size 3 --timeline " + file);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "timeline of 20 steps in " + file));
  const lockstep::testing::Json trace = lockstep::testing::parse_json(read_file(file));
  std::set<std::string> rows;
  std::multiset<std::string> ranges;
  for (const lockstep::testing::Json& event : trace["traceEvents"].array) {
    if (event["name"].text == "thread_name") rows.insert(event["args"]["name"].text);
    if (event["ph"].text == "X") ranges.insert(event["name"].text);
  }
  for (const char* row : {"main", "cpu:0 compute", "cpu:1 compute", "cpu:1 copy"}) {
    EXPECT_EQ(rows.count(row), 1U) << row;
  }
  EXPECT_EQ(ranges.count("step"), 20U);
  EXPECT_EQ(ranges.count("optimizer"), 20U);
  EXPECT_EQ(ranges.count("apply"), 40U);
}

TEST_F(TrainFashionMnist, ATimelineOfAShortRunIsShort) {
  const std::string file = (directory_ / "steps.json").string();
  const std::string arguments = "--devices 1 --batch-size 10 --timeline " + file + " --max-steps ";
  EXPECT_TRUE(contains(train(arguments + "8").out, "timeline of 3 steps in " + file));
  EXPECT_TRUE(contains(read_file(file), "\"optimizer\""));
  const ProgramResult shorter = train(arguments + "5");
  EXPECT_EQ(shorter.status, 1);
  EXPECT_TRUE(contains(shorter.err, "no timeline: training ended before step 6"));
}

TEST_F(TrainFashionMnist, StopsAfterTheStepsAskedFor) {
  EXPECT_EQ(losses("--devices cpu:0 --batch-size=30 --max-steps=5").size(), 5U);
}

TEST_F(TrainFashionMnist, RefusesACommandLineThatMeansNothing) {
  for (const char* arguments :
       {"--device 2", "5", "--epochs", "--epochs two", "--epochs 2x", "--seed -1", "--lr fast",
        "--dtype f16", "--devices 0", "--arch vgg"}) {
    const ProgramResult result = train(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << arguments;
    EXPECT_TRUE(contains(result.err, "train_fashion_mnist: ", "--help")) << arguments;
  }
}

TEST_F(TrainFashionMnist, SaysInOneLineWhatFailed) {
  struct Case {
    const char* arguments;
    const char* reason;
  };
  for (const Case& wanted :
       {Case{"--data /nowhere", "/nowhere/train-images-idx3-ubyte.gz: no such file"},
        Case{"--devices tpu:0", "unknown device string \"tpu:0\""},
        Case{"--devices cpu:0,", "unknown device string \"\""},
        Case{"--devices cpu:9999", "device cpu:9999 is out of range"},
        Case{"--devices 100000", "expected 1 to"},
        Case{"--batch-size 0", "expected a batch size of at least 1, got 0"},
        Case{"--metrics /nowhere/m.csv", "cannot write /nowhere/m.csv: No such file or directory"},
        Case{"--lr -1", "lr"}}) {
    const ProgramResult result = train(wanted.arguments);
    EXPECT_EQ(result.status, 1) << wanted.arguments;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_TRUE(contains(result.err, "train_fashion_mnist: ", wanted.reason));
  }
}

TEST_F(TrainFashionMnist, NamesADamagedFile) {
  std::filesystem::resize_file(directory_ / "t10k-images-idx3-ubyte.gz", 100);
  EXPECT_TRUE(contains(train("").err, "t10k-images-idx3-ubyte.gz: truncated: ends at byte "));
}

TEST_F(TrainFashionMnist, Helps) {
  const ProgramResult result = train("--help");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "Usage: train_fashion_mnist", "--arch", "--devices", "--save",
                       "--resume", "--max-steps"));
}

}  // namespace
