// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/npy.hpp>

#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace npy_test {

using lockstep::BFloat16;
using lockstep::DataError;
using lockstep::Dtype;
using lockstep::Half;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::read_npy;
using lockstep::data::write_npy;
using lockstep::testing::FileSizeLimit;
using lockstep::testing::read_file;
using lockstep::testing::TempDirectory;
using lockstep::testing::throws;
using lockstep::testing::values_of;
using lockstep::testing::write_file;
using lockstep::testing::write_gzip;

// A file as NumPy 2.4 writes it: what follows the header begins at byte 128.
std::string npy(const std::string& literal, const std::string& data, char version = 1) {
  const std::size_t size = 128 - (version == 1 ? 10 : 12);
  std::string bytes = std::string("\x93NUMPY") + version + '\0' + static_cast<char>(size) + '\0';
  if (version > 1) bytes += std::string(2, '\0');
  bytes += literal;
  return bytes + std::string(127 - bytes.size(), ' ') + '\n' + data;
}

std::string literal(const std::string& type, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

std::string zeros(std::size_t count) { return std::string(count, '\0'); }

TEST(Npy, ReadsWhatNumpyWrites) {
  const TempDirectory directory;
  const auto path = directory / "array.npy";
  const auto read = [&](const std::string& bytes) {
    write_file(path, bytes);
    return read_npy(path);
  };
  using namespace std::string_literals;

  const Tensor f32 =
      read(npy(literal("<f4", "(2, 3)"), "\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"s));
  EXPECT_EQ(f32.sizes(), (Shape{2, 3}));
  EXPECT_EQ(values_of<float>(f32), (std::vector<float>{0, 1, 2, 3, 4, 5}));

  const Tensor scalar = read(npy(literal("|b1", "()"), "\x01"));
  EXPECT_EQ(scalar.sizes(), Shape{});
  EXPECT_EQ(values_of<bool>(scalar), std::vector<bool>{true});

  const Tensor f16 = read(npy(literal("<f2", "(1,)"), "\0>"s));
  EXPECT_EQ(values_of<Half>(f16), std::vector<Half>{Half(1.5F)});

  const Tensor bf16 = read(npy(literal("<V2", "(1,)"), "\xc0?"));
  EXPECT_EQ(values_of<BFloat16>(bf16)[0].bits, BFloat16(1.5F).bits);
  EXPECT_EQ(bf16.dtype(), Dtype::bf16);

  const Tensor none = read(npy(literal("|u1", "(0, 4)"), ""));
  EXPECT_EQ(none.dtype(), Dtype::u8);
  EXPECT_EQ(none.sizes(), (Shape{0, 4}));

  const std::string threes = "\x03"s + zeros(7) + "\x03"s + zeros(7);
  for (const char version : {char{1}, char{2}, char{3}}) {
    const Tensor i64 = read(npy(literal("<i8", "(2,)"), threes, version));
    EXPECT_EQ(values_of<std::int64_t>(i64), (std::vector<std::int64_t>{3, 3}));
  }
}

TEST(Npy, ReadsBothOrdersOfBytesAndOfElements) {
  const TempDirectory directory;
  const auto path = directory / "array.npy";
  using namespace std::string_literals;
  write_file(path, npy(literal(">f8", "(2,)"), "?\xf8\0\0\0\0\0\0@\0\0\0\0\0\0\0"s));
  EXPECT_EQ(values_of<double>(read_npy(path)), (std::vector<double>{1.5, 2}));

  // numpy.asfortranarray(numpy.arange(6).reshape(2, 3))
  write_file(path, npy(literal("<i4", "(2, 3)", true),
                       "\0\0\0\0\3\0\0\0\1\0\0\0\4\0\0\0\2\0\0\0\5\0\0\0"s));
  const Tensor matrix = read_npy(path);
  EXPECT_EQ(matrix.sizes(), (Shape{2, 3}));
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(values_of<std::int32_t>(matrix), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Npy, ReadsPackedFilesAndOtherSpellings) {
  const TempDirectory directory;
  const auto path = directory / "array.npy";
  // Other quotes, another order, no commas at the ends, Python 2's numbers, a byte that is no bool.
  const std::string header = "{\"shape\":(2L,1L),'fortran_order':False,'descr':'|b1'}";
  write_gzip(path, npy(header, "\x05" + zeros(1)));
  const Tensor flags = read_npy(path);
  EXPECT_EQ(flags.sizes(), (Shape{2, 1}));
  EXPECT_EQ(values_of<std::uint8_t>(flags.to(Dtype::u8)), (std::vector<std::uint8_t>{1, 0}));
}

TEST(Npy, WritesWhatNumpyWrites) {
  const TempDirectory directory;
  const auto path = directory / "array.npy";
  using namespace std::string_literals;
  const auto written = [&](const Tensor& tensor) {
    write_npy(path, tensor);
    return read_file(path);
  };
  EXPECT_EQ(written(lockstep::from_values(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3})),
            npy(literal("<f4", "(2, 3)"), "\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"s));
  EXPECT_EQ(written(lockstep::scalar_tensor(true)), npy(literal("|b1", "()"), "\x01"));
  EXPECT_EQ(written(lockstep::tensor({Half(1.5F)})), npy(literal("<f2", "(1,)"), "\0>"s));
  EXPECT_EQ(written(lockstep::tensor({BFloat16(1.5F)})), npy(literal("<V2", "(1,)"), "\xc0?"));
  EXPECT_EQ(written(lockstep::empty({0, 4}, {.dtype = Dtype::u8})),
            npy(literal("|u1", "(0, 4)"), ""));
  EXPECT_EQ(written(lockstep::empty({1000000, 0, 10, 10, 10, 10, 10, 10})),
            npy(literal("<f4", "(1000000, 0, 10, 10, 10, 10, 10, 10)"), ""));
  // A header of more than one block, and one that fills a block to the last byte.
  for (const Shape& shape : {Shape{1, 1, 1, 1, 1, 1, 1, 1}, Shape{1, 100000, 1, 1, 0, 10000000}}) {
    const std::string bytes = written(lockstep::empty(shape));
    EXPECT_EQ(bytes.size() % 64, lockstep::numel(shape) * 4 % 64);
    EXPECT_EQ(read_npy(path).sizes(), shape);
  }
}

TEST(Npy, EveryDtypeComesBack) {
  const TempDirectory directory;
  const auto path = directory / "array.npy";
  const Tensor numbers = lockstep::from_values(std::vector<float>{0, 1, 2, 3, 40, 50}, {3, 2});
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::u8, Dtype::boolean}) {
    for (const char* device : {"cpu", "cpu:1"}) {
      const Tensor tensor = numbers.to(dtype).to(lockstep::Device(device));
      write_npy(path, tensor);
      const Tensor back = read_npy(path);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.sizes(), tensor.sizes());
      EXPECT_EQ(values_of<double>(back.to(Dtype::f64)),
                values_of<double>(tensor.to(lockstep::Device()).to(Dtype::f64)));
    }
  }
  const Tensor row = lockstep::detail::make_view(numbers, {2, 3}, {1, 2}, 0);
  write_npy(path, row);
  EXPECT_EQ(values_of<float>(read_npy(path)), (std::vector<float>{0, 2, 40, 1, 3, 50}));
}

TEST(Npy, WhatIsNoWholeNpyFileIsAnError) {
  const TempDirectory directory;
  const auto path = directory / "bad.npy";
  const auto fails = [&](const std::string& bytes, const std::string& message) {
    write_file(path, bytes);
    return throws<DataError>([&] { read_npy(path); }, "bad.npy: " + message);
  };
  const auto header = [&fails](const std::string& text, const std::string& message) {
    return fails(npy(text, zeros(8)), "the header " + message);
  };
  const std::string good = npy(literal("<f4", "(2, 3)"), zeros(24));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(fails(good.substr(0, size), "truncated"));
  }
  EXPECT_TRUE(fails(good + "x", "goes on after the 152 bytes expected"));
  EXPECT_TRUE(fails("\x93NUMPX" + zeros(20), "not a .npy file"));
  EXPECT_TRUE(fails(std::string("\x93NUMPY\x04", 7) + zeros(20), "is of version 4.0"));
  EXPECT_TRUE(fails("\x93NUMPY" + zeros(20), "is of version 0.0"));
  EXPECT_TRUE(fails(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12) + zeros(20),
                    "its header is said to have 4294967295 bytes"));

  EXPECT_TRUE(header("", "has no '{' at character "));
  EXPECT_TRUE(header("{", "has no string at character "));
  EXPECT_TRUE(header("{'descr", "has a string without an end at character 1"));
  EXPECT_TRUE(header("{'descr' '<f4'", "has no ':' at character 9"));
  EXPECT_TRUE(header("{'size': 3}", "has the key 'size'"));
  EXPECT_TRUE(header("{'descr': '<f4'}", "lacks one of the keys"));
  EXPECT_TRUE(header("{'fortran_order': False, 'shape': ()}", "lacks one of the keys"));
  EXPECT_TRUE(header("{'descr': '<f4' 'shape'", "has no '}' at character 16"));
  EXPECT_TRUE(header("{'fortran_order': 0}", "has neither True nor False at character 18"));
  EXPECT_TRUE(header(literal("<f4", "(2)") + "}", "goes on after the closing brace"));
  EXPECT_TRUE(header(literal("<f4", "2"), "has no '('"));
  EXPECT_TRUE(header(literal("<f4", "(-1,)"), "has no size"));
  EXPECT_TRUE(header(literal("<f4", "(99999999999999999999,)"), "has no size"));
  EXPECT_TRUE(header(literal("<f4", "(1 2)"), "has no ')'"));
  EXPECT_TRUE(header(literal("<f4", "(1,1,1,1,1,1,1,1,1)"), "has more than 8 dimensions"));
  EXPECT_TRUE(header("{'descr': [('a', '<f4')]}", "is of a structured array"));
  for (const char* type : {"<i2", "|O", "<U3", "<c8", "f4", "", "<f4<", ">V2", "xf4"}) {
    EXPECT_TRUE(header(literal(type, "(2,)"), std::string("gives the type '") + type + "'"));
  }
  EXPECT_TRUE(fails(npy(literal("<f4", "(4000000000, 4000000000)"), zeros(8)),
                    "its header gives the shape [4000000000, 4000000000], more than memory"));
  // Memory is taken as the file is read, so this is no matter of memory.
  EXPECT_TRUE(fails(npy(literal("<f4", "(1000000, 1000000)"), zeros(8)), "truncated"));
}

TEST(Npy, APathThatCannotBeUsedIsAnError) {
  const TempDirectory directory;
  EXPECT_TRUE(
      throws<DataError>([&] { read_npy(directory / "none.npy"); }, "none.npy", "cannot be opened"));
  EXPECT_TRUE(
      throws<DataError>([&] { write_npy(directory / "no" / "a.npy", lockstep::zeros({1})); },
                        "a.npy: cannot be created: No such file or directory"));
  EXPECT_TRUE(throws<DataError>([&] { write_npy("/dev/full", lockstep::zeros({1})); },
                                "/dev/full: cannot be written: No space left"));
}

TEST(Npy, AFailedWriteLeavesTheOldFile) {
  const TempDirectory directory;
  write_npy(directory / "a.npy", lockstep::arange(3));
  {
    const FileSizeLimit limit(5'000);
    EXPECT_TRUE(throws<DataError>([&] { write_npy(directory / "a.npy", lockstep::zeros({5'000})); },
                                  "a.npy: cannot be written: File too large"));
  }
  EXPECT_EQ(values_of<std::int64_t>(read_npy(directory / "a.npy")),
            (std::vector<std::int64_t>{0, 1, 2}));
}

}  // namespace npy_test
