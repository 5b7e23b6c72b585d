// SPDX-License-Identifier: Apache-2.0

// Writes a small data set in place of Fashion-MNIST, for machines that have none: each class is a
// bar of its own in noise.
//
//   make_images DIRECTORY IMAGES
#include "data/files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>

namespace {

void write_part(const std::filesystem::path& directory, const std::string& part,
                std::uint32_t count) {
  std::mt19937 random(count);
  std::string images = lockstep::testing::idx_header(8, {count, 28, 28});
  std::string labels = lockstep::testing::idx_header(8, {count});
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t label = i % 10;
    std::string image(784, '\0');
    std::generate(image.begin(), image.end(), [&] { return static_cast<char>(random() % 64); });
    image.replace(label * 56, 56, 56, static_cast<char>(200));
    images += image;
    labels.push_back(static_cast<char>(label));
  }
  lockstep::testing::write_file(directory / (part + "-images-idx3-ubyte"), images);
  lockstep::testing::write_file(directory / (part + "-labels-idx1-ubyte"), labels);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count < 10) {
    std::cerr << "usage: make_images DIRECTORY IMAGES, at least 10\n";
    return 2;
  }
  try {
    std::filesystem::create_directories(argv[1]);
    write_part(argv[1], "train", static_cast<std::uint32_t>(count));
    write_part(argv[1], "t10k", static_cast<std::uint32_t>(count / 5));
  } catch (const std::exception& error) {
    std::cerr << "make_images: " << error.what() << '\n';
    return 1;
  }
}
