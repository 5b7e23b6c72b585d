// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "../../examples/support/text.hpp"
#include "data/files.hpp"
#include "examples/program.hpp"
#include "support/sanitizers.hpp"

// The program that trains on text, with small models and a text of a few thousand characters.
namespace lockstep {
namespace train_text_test {

using testing::contains;
using testing::lines_of;
using testing::ProgramResult;
using testing::read_file;
using testing::run_example;
using testing::TempDirectory;
using testing::write_file;

TEST(ExampleText, BigramsAreCountedAndSmoothed) {
  const example::Bigram bigram("abab");
  EXPECT_DOUBLE_EQ(bigram.loss("ab"), std::log((256 + 2) / (1 + 2.0)));
  EXPECT_DOUBLE_EQ(bigram.loss("xy"), std::log(256.0));
  EXPECT_DOUBLE_EQ(bigram.loss("aba"), (std::log(258 / 3.0) + std::log(257 / 2.0)) / 2);
  EXPECT_DOUBLE_EQ(bigram.loss("\xff\x80"), std::log(256.0));
}

TEST(ExampleText, WindowsAreColumnsAndTheirSuccessors) {
  const example::TextWindows windows("abcdefg", 2);
  ASSERT_EQ(windows.size(), 3);
  EXPECT_EQ(windows.covered(), "abcdefg");
  EXPECT_EQ(example::TextWindows("abcdef", 2).size(), 2);
  EXPECT_EQ(example::TextWindows("abcdef", 2).covered(), "abcde");
  const std::vector<std::int64_t> wanted{2, 0};
  const auto [text, next] = windows.get_batch(wanted);
  EXPECT_EQ(text.sizes(), (Shape{2, 2}));
  EXPECT_EQ(text.to_vector<std::int64_t>(), (std::vector<std::int64_t>{'e', 'a', 'f', 'b'}));
  EXPECT_EQ(next.to_vector<std::int64_t>(), (std::vector<std::int64_t>{'f', 'b', 'g', 'c'}));
}

TEST(ExampleText, AFolderIsReadInTheOrderOfItsFiles) {
  const TempDirectory folder;
  std::filesystem::create_directory(folder / "b");
  write_file(folder / "c", "3");
  write_file(folder / "b" / "z", "2");
  write_file(folder / "a", "1");
  write_file(folder / "binary", std::string("x\0y", 3));
  EXPECT_EQ(example::read_text(folder.path()), "123");
}

class TrainText : public ::testing::Test {
 protected:
  TrainText() {
    std::filesystem::create_directories(folder() / "inner");
    std::string text;
    for (int i = 0; i < 120; ++i) {
      text += "for (int i = 0; i < " + std::to_string(i * 37 % 101) + "; ++i) sum += i;\n";
    }
    write_file(folder() / "inner" / "loops.txt", text);
    write_file(folder() / "binary", std::string(1000, '\0'));
  }

  std::filesystem::path folder() const { return directory_ / "text"; }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  ProgramResult train(const std::string& arguments) const {
    return run_example(
        "train_text --text " + folder().string() + " --metrics " + path("metrics.csv") +
        " --width 16 --length 16 --batch-size 10 --sample 30 --epoch-steps 10 " + arguments);
  }

  std::vector<double> losses(const std::string& arguments) const {
    const ProgramResult result = train(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<double> losses;
    for (const std::string& line : lines_of(read_file(path("metrics.csv")))) {
      std::istringstream in(line);
      std::string step;
      std::string epoch;
      std::string loss;
      std::getline(std::getline(std::getline(in, step, ','), epoch, ','), loss, ',');
      if (step != "step" && !loss.empty()) losses.push_back(std::stod(loss));
    }
    return losses;
  }

  TempDirectory directory_;
};

TEST_F(TrainText, PrintsProgressAndLossesAndWritesText) {
  const ProgramResult result = train("--devices 2 --epochs 2");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find('\r'), std::string::npos);
  EXPECT_TRUE(contains(result.out, "epoch 1  step 10/10  loss ", " characters/s\n",
                       "epoch 1  train loss ", "  validation loss ", "  (bigrams ",
                       "epoch 2  train loss "));
  const std::string metrics = read_file(path("metrics.csv"));
  EXPECT_TRUE(
      contains(metrics, "step,epoch,loss,characters_per_second,validation_loss\n1,1,", "\n20,2,"));
  const std::size_t written = result.out.find('\n', result.out.find("epoch 2  train loss "));
  EXPECT_EQ(result.out.size() - written, 1U + 30 + 2);
}

TEST_F(TrainText, DrawsABarOnATerminal) {
  const testing::Terminal terminal;
  EXPECT_EQ(train("--epochs 1 >" + terminal.name()).status, 0);
  EXPECT_TRUE(contains(terminal.read(), "\repoch 1 [==============================] 10/10  loss ",
                       " characters/s"));
}

TEST_F(TrainText, LearnsMoreThanBigrams) {
  for (const std::string model : {"lstm", "transformer"}) {
    const ProgramResult result = train(
        "--devices 2 --epochs 3 --epoch-steps 0 --batch-size 2 --lr 0.03 --width 32 --model " +
        model);
    const std::size_t at = result.out.rfind("validation loss ");
    ASSERT_NE(at, std::string::npos) << result.err;
    std::istringstream in(result.out.substr(at));
    std::string word;
    double loss = 0;
    double bigrams = 0;
    in >> word >> word >> loss >> word >> bigrams;
    EXPECT_GT(loss, 0);
    EXPECT_LT(loss, bigrams) << model;
  }
}

TEST_F(TrainText, EveryNumberOfDevicesGivesTheSameLosses) {
  for (const std::string model : {"lstm", "transformer"}) {
    const std::size_t steps = lockstep::testing::kSanitizer ? 4 : 20;
    const std::string rest = " --epochs 2 --sample 0 --dtype f64 --model " + model +
                             " --max-steps " + std::to_string(steps);
    const std::vector<double> one = losses("--devices 1" + rest);
    ASSERT_EQ(one.size(), steps);
    for (const char* devices : {"--devices 2", "--devices 3"}) {
      const std::vector<double> several = losses(devices + rest);
      ASSERT_EQ(several.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(several[i], one[i], 1e-9 * std::abs(one[i]))
            << devices << " step " << i << " of " << model;
      }
    }
  }
}

// With dropout, whose random numbers go on as well.
TEST_F(TrainText, ResumingGivesTheSameBits) {
  for (const std::string model : {"lstm", "transformer"}) {
    const std::string rest = " --devices 2 --epochs 2 --dropout 0.2 --model " + model;
    const std::string whole = path("whole.safetensors");
    const std::string half = path("half.safetensors");
    std::vector<double> all = losses("--save " + whole + rest);
    ASSERT_EQ(all.size(), 20U);
    EXPECT_EQ(losses("--max-steps 10 --save " + half + rest).size(), 10U);
    EXPECT_NE(read_file(half), read_file(whole));
    all.erase(all.begin(), all.begin() + 10);
    EXPECT_EQ(losses("--resume " + half + " --save " + half + rest), all) << model;
    EXPECT_TRUE(read_file(half) == read_file(whole)) << model;
    EXPECT_NE(losses("--seed 1" + rest), losses("--seed 2" + rest)) << model;
  }
}

TEST_F(TrainText, WritingChangesNothingInTraining) {
  const std::string rest = "--devices 2 --epochs 2 --dropout 0.2";
  EXPECT_EQ(losses("--sample 0 " + rest), losses("--sample 5 " + rest));
}

TEST_F(TrainText, RefusesACommandLineThatMeansNothing) {
  for (const char* arguments : {"--model gru", "--dtype f16", "--length 0", "--layers 0",
                                "--temperature 0", "--epochs two", "--save"}) {
    const ProgramResult result = train(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_TRUE(contains(result.err, "train_text: ", "--help")) << arguments;
  }
}

TEST_F(TrainText, SaysInOneLineWhatFailed) {
  const std::string file = path("lstm.safetensors");
  ASSERT_EQ(train("--devices 1 --epochs 1 --save " + file).status, 0);
  const std::string other = path("transformer.safetensors");
  ASSERT_EQ(train("--model transformer --devices 1 --epochs 1 --save " + other).status, 0);
  std::filesystem::create_directory(directory_ / "empty");
  std::filesystem::create_directory(directory_ / "short");
  write_file(directory_ / "short" / "text", "Too short.");
  struct Case {
    std::string arguments;
    std::string reason;
  };
  for (const Case& wanted :
       {Case{"--text /nowhere", "/nowhere: no such folder"},
        Case{"--text " + file, "lstm.safetensors: no such folder"},
        Case{"--text " + path("empty"), "empty: there is no text in this folder"},
        Case{"--text " + path("short"), "short: 9 characters to train with are not enough"},
        Case{"--length 1000", "characters to validate with are not enough for windows of 1000"},
        Case{"--model transformer --resume " + file,
             "holds another model (lstm, 2 layers of 16) than this one (transformer, 2 layers"},
        Case{"--width 32 --resume " + file,
             "(lstm, 2 layers of 16) than this one (lstm, 2 layers "
             "of 32)"},
        Case{"--model transformer --length 8 --resume " + other, "of 16, windows of 16) than this"},
        Case{"--resume /nowhere/x", "/nowhere/x"},
        Case{"--resume " + (folder() / "inner" / "loops.txt").string(), "loops.txt: "},
        Case{"--save /nowhere/x", "cannot save /nowhere/x: there is no folder /nowhere"},
        Case{"--devices tpu:0", "unknown device string \"tpu:0\""}, Case{"--dropout 2", "LSTM"},
        Case{"--width 0", "Embedding"}}) {
    const ProgramResult result = train(wanted.arguments);
    EXPECT_EQ(result.status, 1) << wanted.arguments;
    EXPECT_EQ(result.out, "") << wanted.arguments;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_TRUE(contains(result.err, "train_text: ", wanted.reason)) << wanted.arguments;
  }
}

TEST_F(TrainText, Helps) {
  const ProgramResult result = train("--help");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "Usage: train_text", "--text", "--model", "--resume"));
}

}  // namespace train_text_test
}  // namespace lockstep
