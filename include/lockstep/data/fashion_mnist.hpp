// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lockstep::data {

// The directory of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

// A pixel of brightness 0 to 255 becomes (brightness / 255 − mean) / deviation.
struct FashionMnistOptions {
  double mean = 0;
  double deviation = 1;
  Dtype dtype = Dtype::f32;
};

// Fashion-MNIST: 60,000 images of clothing for training and 10,000 for testing, of 28 × 28 grey
// pixels and 10 classes.
//
// A sample is {image (1, 28, 28), label ()}, a batch {images (N, 1, 28, 28), labels (N)}, with
// images of the requested dtype and labels of i64. Pixels are stored as bytes and converted batch
// by batch. It holds handles: copies share the data.
//
// **Torch counterpart.** torchvision.datasets.FashionMNIST with ToTensor and Normalize.
// **Devices and streams.** Everything is on `cpu`.
// **Threads and exceptions.** Any thread may read. A DataError for a file that is missing, damaged,
// of an unexpected shape or dtype, or has a label that is not a class (with its row), and for
// different numbers of images and labels (with both files); a DtypeError for a dtype other than f32
// and f64; a ValueError for a deviation of 0.
class FashionMnist {
 public:
  static constexpr std::int64_t kClasses = 10;
  static constexpr std::int64_t kSide = 28;

  explicit FashionMnist(const std::filesystem::path& directory = kFashionMnistDirectory,
                        bool train = true, const FashionMnistOptions& options = {});

  std::int64_t size() const { return labels_.size(0); }

  std::array<Tensor, 2> get(std::int64_t index) const;

  std::array<Tensor, 2> get_batch(std::span<const std::int64_t> indices) const;

  // (N, 28, 28), u8, as in the file.
  const Tensor& pixels() const { return pixels_; }
  // (N), i64.
  const Tensor& labels() const { return labels_; }

 private:
  FashionMnistOptions options_;
  Tensor pixels_;
  Tensor labels_;
};

namespace detail {

// The file of this name in `directory`, compressed (NAME.gz) or plain (NAME).
std::filesystem::path find_data_file(const std::filesystem::path& directory,
                                     const std::string& name);

}  // namespace detail

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/fashion_mnist.ipp>
#endif
