// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/files.hpp"
#include "examples/program.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

// The training program on a data set that takes no time: each class is a bar of its own.
namespace lockstep::testing {

class FashionMnistTraining : public ::testing::Test {
 protected:
  using Row = std::vector<std::string>;

  static constexpr std::uint32_t kTrain = 100;
  static constexpr std::uint32_t kTest = 30;

  FashionMnistTraining() {
    write("train", kTrain);
    write("t10k", kTest);
  }

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
    write_gzip(directory_ / (part + "-images-idx3-ubyte.gz"), images);
    write_file(directory_ / (part + "-labels-idx1-ubyte"), labels);
  }

  std::string metrics() const { return (directory_ / "metrics.csv").string(); }

  ProgramResult train(const std::string& arguments) const {
    return run_example("train_fashion_mnist --data " + directory_.path().string() + " --metrics " +
                       metrics() + " " + arguments);
  }

  // The rows of the metrics file, split at the commas; every line must have all of them.
  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const std::string& line : lines_of(read_file(metrics()))) {
      std::istringstream in(line + ",");
      Row row;
      for (std::string cell; std::getline(in, cell, ',');) row.push_back(cell);
      EXPECT_EQ(row.size(), 5U) << line;
      rows.push_back(row);
    }
    return rows;
  }

  std::vector<double> losses(const std::string& arguments) const {
    const ProgramResult result = train(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return written_losses();
  }

  // Those of the last run.
  std::vector<double> written_losses() const {
    std::vector<double> losses;
    for (const Row& row : rows()) {
      if (row[0] != "step" && !row[2].empty()) losses.push_back(std::stod(row[2]));
    }
    return losses;
  }

  TempDirectory directory_;
};

}  // namespace lockstep::testing
