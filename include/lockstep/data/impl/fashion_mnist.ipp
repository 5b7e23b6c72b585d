// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/fashion_mnist.hpp>
#include <lockstep/data/files/rows.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace lockstep::data::detail {

LOCKSTEP_INLINE std::filesystem::path find_data_file(const std::filesystem::path& directory,
                                                     const std::string& name) {
  const std::filesystem::path packed = directory / (name + ".gz");
  std::error_code ignored;  // a file whose status is unknown counts as missing
  if (std::filesystem::exists(packed, ignored)) return packed;
  if (std::filesystem::exists(directory / name, ignored)) return directory / name;
  const bool is_default = directory == std::filesystem::path(kFashionMnistDirectory);
  lockstep::detail::fail<DataError>(
      packed.string(), ": no such file, nor one without .gz",
      is_default ? "; Debian's package dataset-fashion-mnist brings it" : "");
}

}  // namespace lockstep::data::detail

namespace lockstep::data {

LOCKSTEP_INLINE FashionMnist::FashionMnist(const std::filesystem::path& directory, bool train,
                                           const FashionMnistOptions& options)
    : options_(options) {
  check<DtypeError>(options.dtype == Dtype::f32 || options.dtype == Dtype::f64,
                    "FashionMnist: expected f32 or f64, got ", options.dtype);
  check<ValueError>(options.deviation != 0, "FashionMnist: the deviation must not be 0");
  const std::string part = train ? "train" : "t10k";
  const auto images = detail::find_data_file(directory, part + "-images-idx3-ubyte");
  const auto labels = detail::find_data_file(directory, part + "-labels-idx1-ubyte");
  pixels_ = read_idx(images);
  const bool good = pixels_.dtype() == Dtype::u8 && pixels_.dim() == 3 &&
                    pixels_.size(1) == kSide && pixels_.size(2) == kSide;
  check<DataError>(good, images.string(), ": expected u8 of shape [N, ", kSide, ", ", kSide,
                   "], got ", pixels_.dtype(), " of ", pixels_.sizes());
  const Tensor classes = read_idx(labels);
  check<DataError>(classes.dtype() == Dtype::u8 && classes.dim() == 1, labels.string(),
                   ": expected u8 of shape [N], got ", classes.dtype(), " of ", classes.sizes());
  labels_ = lockstep::detail::cast(classes, Dtype::i64);
  const auto* const values = labels_.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < size(); ++row) {
    if (values[row] < kClasses) continue;
    lockstep::detail::fail<DataError>(labels.string(), ": label ", values[row], " of row ", row,
                                      " is none of the ", kClasses, " classes");
  }
  check<DataError>(pixels_.size(0) == size(), images.string(), " has ", pixels_.size(0),
                   " images, but ", labels.string(), " has ", size(), " labels");
}

LOCKSTEP_INLINE std::array<Tensor, 2> FashionMnist::get(std::int64_t index) const {
  auto [images, labels] = get_batch({&index, 1});
  return {detail::row_of(images, 0), detail::row_of(labels, 0)};
}

LOCKSTEP_INLINE std::array<Tensor, 2> FashionMnist::get_batch(
    std::span<const std::int64_t> indices) const {
  constexpr auto kPixels = static_cast<std::size_t>(kSide * kSide);
  const Tensor labels = detail::select_rows(labels_, indices);  // checks the indices
  const auto count = static_cast<std::int64_t>(indices.size());
  Tensor images = empty({count, 1, kSide, kSide}, {.dtype = options_.dtype});
  dispatch_floating(options_.dtype, "FashionMnist", [&]<class T>(T) {
    std::array<T, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double brightness = static_cast<double>(i) / 255;
      values[i] = static_cast<T>((brightness - options_.mean) / options_.deviation);
    }
    const auto* pixels = pixels_.const_data_ptr<std::uint8_t>();
    T* out = images.mutable_data_ptr<T>();
    for (const std::int64_t index : indices) {
      const auto* image = pixels + static_cast<std::size_t>(index) * kPixels;
      for (std::size_t i = 0; i < kPixels; ++i) *out++ = values[image[i]];
    }
  });
  return {images, labels};
}

}  // namespace lockstep::data
