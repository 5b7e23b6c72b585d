// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/fashion_mnist.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fashion_mnist_test {

using lockstep::DataError;
using lockstep::Dtype;
using lockstep::DtypeError;
using lockstep::IndexError;
using lockstep::Shape;
using lockstep::ValueError;
using lockstep::data::FashionMnist;
using lockstep::data::kFashionMnistDirectory;
using lockstep::testing::contains;
using lockstep::testing::idx_header;
using lockstep::testing::message_of;
using lockstep::testing::TempDirectory;
using lockstep::testing::values_of;
using lockstep::testing::write_file;
using lockstep::testing::write_gzip;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

// Image i is all brightness 10·i.
std::string images(std::uint32_t count) {
  std::string bytes = idx_header(8, {count, 28, 28});
  for (std::uint32_t i = 0; i < count; ++i) bytes += std::string(784, static_cast<char>(10 * i));
  return bytes;
}

std::string labels(const std::string& classes) {
  return idx_header(8, {static_cast<std::uint32_t>(classes.size())}) + classes;
}

class FashionMnistFiles : public ::testing::Test {
 protected:
  void write(const std::string& image_bytes, const std::string& label_bytes) const {
    write_gzip(directory_ / (std::string(kImages) + ".gz"), image_bytes);
    write_gzip(directory_ / (std::string(kLabels) + ".gz"), label_bytes);
  }
  std::string failure() const {
    return message_of<DataError>([&] { FashionMnist(directory_.path()); });
  }

  TempDirectory directory_;
};

TEST_F(FashionMnistFiles, GivesImagesFromZeroToOneAndLabels) {
  write(images(4), labels(std::string("\3\0\11\1", 4)));
  const FashionMnist dataset(directory_.path());
  EXPECT_EQ(dataset.size(), 4);
  const std::array<std::int64_t, 3> wanted{2, 0, 2};
  const auto [batch, classes] = dataset.get_batch(wanted);
  EXPECT_EQ(batch.sizes(), (Shape{3, 1, 28, 28}));
  EXPECT_EQ(batch.dtype(), Dtype::f32);
  EXPECT_EQ(values_of<std::int64_t>(classes), (std::vector<std::int64_t>{9, 3, 9}));
  const std::vector<float> pixels = values_of<float>(batch);
  EXPECT_EQ(pixels.front(), 20.0F / 255.0F);
  EXPECT_EQ(pixels[784], 0.0F);
  EXPECT_EQ(pixels.back(), 20.0F / 255.0F);

  const auto [image, label] = dataset.get(1);
  EXPECT_EQ(image.sizes(), (Shape{1, 28, 28}));
  EXPECT_EQ(label.sizes(), Shape{});
  EXPECT_EQ(values_of<float>(image)[783], 10.0F / 255.0F);
  EXPECT_EQ(values_of<std::int64_t>(label)[0], 0);
}

TEST_F(FashionMnistFiles, FindsPlainFilesAndTheTestSet) {
  write_file(directory_ / "t10k-images-idx3-ubyte", images(2));
  write_file(directory_ / "t10k-labels-idx1-ubyte", labels("\1\2"));
  EXPECT_EQ(FashionMnist(directory_.path(), false).size(), 2);
  EXPECT_TRUE(contains(failure(), std::string(kImages) + ".gz: no such file, nor one without .gz"));
}

TEST_F(FashionMnistFiles, NormalisesInTheDtypeAskedFor) {
  write(images(2), labels("\1\2"));
  const FashionMnist dataset(directory_.path(), true,
                             {.mean = 0.5, .deviation = 0.25, .dtype = Dtype::f64});
  const auto [image, label] = dataset.get(1);
  EXPECT_EQ(values_of<double>(image)[0], (10.0 / 255 - 0.5) / 0.25);
  EXPECT_EQ(
      message_of<ValueError>([&] { FashionMnist(directory_.path(), true, {.deviation = 0}); }),
      "FashionMnist: the deviation must not be 0");
  EXPECT_EQ(
      message_of<DtypeError>([&] { FashionMnist(directory_.path(), true, {.dtype = Dtype::u8}); }),
      "FashionMnist: expected f32 or f64, got u8");
}

TEST_F(FashionMnistFiles, ASampleThatIsNotThereIsAnError) {
  write(images(2), labels("\1\2"));
  const FashionMnist dataset(directory_.path());
  EXPECT_TRUE(contains(message_of<IndexError>([&] { (void)dataset.get(2); }),
                       "sample 2 is out of range: there are 2"));
  EXPECT_THROW((void)dataset.get(-1), IndexError);
}

TEST_F(FashionMnistFiles, AnEmptySetIsFine) {
  write(images(0), labels(""));
  EXPECT_EQ(FashionMnist(directory_.path()).size(), 0);
}

TEST_F(FashionMnistFiles, CountsThatDifferNameBothFiles) {
  write(images(3), labels("\1\2"));
  EXPECT_TRUE(contains(failure(), std::string(kImages) + ".gz has 3 images",
                       std::string(kLabels) + ".gz has 2 labels"));
}

TEST_F(FashionMnistFiles, ALabelThatIsNoClassNamesItsRow) {
  write(images(3), labels("\1\11\12"));
  EXPECT_TRUE(contains(failure(), kLabels, "label 10 of row 2 is none of the 10"));
}

TEST_F(FashionMnistFiles, ImagesOfAnotherShapeNameIt) {
  write(idx_header(8, {1, 2, 2}) + "abcd", labels("\1"));
  EXPECT_TRUE(
      contains(failure(), kImages, "expected u8 of shape [N, 28, 28]", "got u8 of [1, 2, 2]"));
}

TEST_F(FashionMnistFiles, SwappedFilesAreNoticed) {
  write(labels("\1"), images(1));
  EXPECT_TRUE(contains(failure(), "got u8 of [1]"));
}

TEST_F(FashionMnistFiles, TruncatedImagesNameTheFileAndTheByte) {
  write(images(3).substr(0, 1000), labels("\1\2\3"));
  EXPECT_TRUE(contains(failure(), kImages, "ends at byte 1000", "expected 2368"));
}

TEST(FashionMnist, NamesThePackageWhereItsFilesAreMissing) {
  const std::string missing = message_of<DataError>(
      [] { lockstep::data::detail::find_data_file(kFashionMnistDirectory, "no-such-file"); });
  EXPECT_TRUE(contains(missing, "Debian's package dataset-fashion-mnist brings it"));
}

TEST(FashionMnist, IsAsPublished) {
  if (!std::filesystem::exists(kFashionMnistDirectory)) {
    GTEST_SKIP() << kFashionMnistDirectory << " is missing (Debian: dataset-fashion-mnist)";
  }
  for (const bool train : {true, false}) {
    const FashionMnist dataset(kFashionMnistDirectory, train);
    EXPECT_EQ(dataset.size(), train ? 60'000 : 10'000);
    std::vector<std::int64_t> count(10);
    for (const std::int64_t label : values_of<std::int64_t>(dataset.labels())) {
      ++count[static_cast<std::size_t>(label)];
    }
    EXPECT_EQ(count, std::vector<std::int64_t>(10, dataset.size() / 10));
    if (train) {
      EXPECT_EQ(values_of<std::int64_t>(dataset.get(0)[1])[0], 9);  // an ankle boot
      // The mean brightness that everybody normalises with.
      double sum = 0;
      for (const std::uint8_t pixel : values_of<std::uint8_t>(dataset.pixels())) sum += pixel;
      EXPECT_NEAR(sum / 255 / static_cast<double>(dataset.pixels().numel()), 0.2860, 5e-5);
    }
  }
}

}  // namespace fashion_mnist_test
