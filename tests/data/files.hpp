// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <ios>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include <stdlib.h>
#include <zlib.h>

#include "support/expect_error.hpp"

// Small data files, good and bad, for the tests of this directory.
namespace lockstep::testing {

// A directory of its own, removed with everything in it when the test ends.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = ::testing::TempDir() + "lockstep-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw Error("mkdtemp failed for " + name);
    path_ = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) throw Error("cannot write " + path.string());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_gzip(const std::filesystem::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  const int written = gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  if (gzclose(file) != Z_OK || written != static_cast<int>(bytes.size())) {
    throw Error("cannot write " + path.string());
  }
}

inline std::string big_endian(std::uint64_t value, int count = 4) {
  std::string bytes;
  for (int i = count; i-- > 0;) bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
  return bytes;
}

inline std::string idx_header(char type, std::initializer_list<std::uint32_t> sizes) {
  std::string bytes{'\0', '\0', type, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) bytes += big_endian(size);
  return bytes;
}

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const T* data = tensor.const_data_ptr<T>();
  return std::vector<T>(data, data + tensor.numel());
}

// Whether all parts are in the text.
template <class... Parts>
::testing::AssertionResult contains(const std::string& text, const Parts&... parts) {
  for (const std::string& part : {std::string(parts)...}) {
    if (text.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << part << "\" in \"" << text << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep::testing
