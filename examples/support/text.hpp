// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// Text as training data: its characters are bytes, so that any encoding will do.
namespace example {

inline constexpr std::int64_t kCharacters = 256;

// The C++ headers that g++ installs, of its newest version; an empty path if there are none.
inline std::filesystem::path find_cxx_headers() {
  std::filesystem::path newest;
  int version = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/include/c++", error)) {
    const int found = std::atoi(entry.path().filename().c_str());
    if (found > version) {
      version = found;
      newest = entry.path();
    }
  }
  return newest;
}

// All files of the folder and of those in it one after another, by name; files with a byte of 0 are
// no text. A runtime_error if there is no such folder or no text in it.
inline std::string read_text(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw std::runtime_error(folder.string() + ": no such folder");
  }
  std::vector<fs::path> files;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder, kOptions)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (bytes.find('\0') == bytes.npos) text += bytes;
  }
  if (text.empty()) throw std::runtime_error(folder.string() + ": there is no text in this folder");
  return text;
}

// The number of a character.
inline std::int64_t index_of(char character) { return static_cast<unsigned char>(character); }

// A text in windows of `length` characters. A batch is {characters, next}, both [length, batch] of
// i64: each column is a window, and the same one character later.
class TextWindows {
 public:
  TextWindows(std::string text, std::int64_t length) : text_(std::move(text)), length_(length) {}

  std::int64_t size() const { return (static_cast<std::int64_t>(text_.size()) - 1) / length_; }

  std::array<lockstep::Tensor, 2> get_batch(std::span<const std::int64_t> windows) const {
    std::vector<std::int64_t> characters;
    std::vector<std::int64_t> next;
    for (std::int64_t step = 0; step < length_; ++step) {
      for (const std::int64_t window : windows) {
        const auto at = static_cast<std::size_t>(window * length_ + step);
        characters.push_back(index_of(text_[at]));
        next.push_back(index_of(text_[at + 1]));
      }
    }
    const lockstep::Shape shape{length_, static_cast<std::int64_t>(windows.size())};
    return {lockstep::from_values(characters, shape), lockstep::from_values(next, shape)};
  }

  // What the windows cover, with the character that follows the last of them.
  std::string_view covered() const {
    return std::string_view(text_).substr(0, static_cast<std::size_t>(size() * length_ + 1));
  }

 private:
  std::string text_;
  std::int64_t length_;
};

// The model that knows of a text only how often each character follows each other: what any model
// with a memory has to beat.
class Bigram {
 public:
  explicit Bigram(std::string_view text) : counts_(kCharacters * kCharacters, 1) {
    for (std::size_t i = 1; i < text.size(); ++i) ++counts_[place(text[i - 1], text[i])];
    for (std::size_t i = 0; i < counts_.size(); ++i) sums_[i / kCharacters] += counts_[i];
  }

  // The mean of −log p of each character of the text but the first.
  double loss(std::string_view text) const {
    double sum = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
      const auto row = static_cast<std::size_t>(index_of(text[i - 1]));
      sum += std::log(sums_[row] / counts_[place(text[i - 1], text[i])]);
    }
    return sum / static_cast<double>(text.size() - 1);
  }

 private:
  static std::size_t place(char first, char second) {
    return static_cast<std::size_t>(index_of(first) * kCharacters + index_of(second));
  }

  std::vector<double> counts_;  // one more than there are, so that nothing is impossible
  std::array<double, kCharacters> sums_{};
};

}  // namespace example
