// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/npy_header.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep::data::detail {

LOCKSTEP_INLINE NpyHeader NpyHeaderParser::parse() {
  NpyHeader header;
  unsigned found = 0;  // a bit for each key
  expect('{');
  while (!take('}')) {
    const std::string_view key = string();
    expect(':');
    if (key == "descr") {
      found |= 1U;
      descr(header);
    } else if (key == "fortran_order") {
      found |= 2U;
      header.fortran_order = boolean();
    } else if (key == "shape") {
      found |= 4U;
      header.shape = shape();
    } else {
      fail("has the key '", key, "', expected descr, fortran_order and shape");
    }
    if (!take(',')) {
      expect('}');
      break;
    }
  }
  skip_blanks();
  if (at_ != text_.size()) fail("goes on after the closing brace, at character ", at_);
  if (found != 7) fail("lacks one of the keys descr, fortran_order and shape");
  return header;
}

LOCKSTEP_INLINE char NpyHeaderParser::peek() {
  skip_blanks();
  return at_ < text_.size() ? text_[at_] : '\0';
}

LOCKSTEP_INLINE bool NpyHeaderParser::take(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

LOCKSTEP_INLINE void NpyHeaderParser::expect(char c) {
  if (!take(c)) fail("has no '", c, "' at character ", at_);
}

LOCKSTEP_INLINE std::string_view NpyHeaderParser::string() {
  const char quote = peek();
  if (quote != '\'' && quote != '"') fail("has no string at character ", at_);
  const std::size_t end = text_.find(quote, at_ + 1);
  if (end == std::string_view::npos) fail("has a string without an end at character ", at_);
  const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  return result;
}

LOCKSTEP_INLINE bool NpyHeaderParser::boolean() {
  skip_blanks();
  for (const auto& [word, value] :
       {std::pair(std::string_view("True"), true), std::pair(std::string_view("False"), false)}) {
    if (!text_.substr(at_).starts_with(word)) continue;
    at_ += word.size();
    return value;
  }
  fail("has neither True nor False at character ", at_);
}

LOCKSTEP_INLINE Shape NpyHeaderParser::shape() {
  Shape shape;
  expect('(');
  while (!take(')')) {
    skip_blanks();
    std::int64_t size = 0;
    const char* const first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), size);
    if (error != std::errc() || size < 0) fail("has no size at character ", at_);
    if (shape.size() == Shape::kMaxDims) fail("has more than ", Shape::kMaxDims, " dimensions");
    at_ += static_cast<std::size_t>(end - first);
    (void)take('L');  // NumPy under Python 2
    shape.push_back(size);
    if (!take(',')) {
      expect(')');
      break;
    }
  }
  return shape;
}

LOCKSTEP_INLINE void NpyHeaderParser::descr(NpyHeader& header) {
  if (peek() == '[') fail("is of a structured array, expected one of plain numbers");
  const std::string_view descr = string();
  for (const auto& [type, dtype] : kNpyDtypes) {
    if (!descr.ends_with(type) || descr.size() != type.size() + 1) continue;
    const bool big_endian = descr[0] == '>' && element_size(dtype) > 1;
    if (std::string_view("<>|=").find(descr[0]) == std::string_view::npos) continue;
    if (big_endian && dtype == Dtype::bf16) continue;
    header.dtype = dtype;
    header.big_endian = big_endian;
    return;
  }
  fail("gives the type '", descr,
       "', which tensors cannot hold: expected f2, f4, f8, i4, i8, u1, b1 or V2 (bf16); convert "
       "the array with astype");
}

LOCKSTEP_INLINE std::string npy_header(Dtype dtype, const Shape& shape) {
  std::string_view type;
  for (const auto& [name, candidate] : kNpyDtypes) {
    if (candidate == dtype) type = name;
  }
  std::string text = element_size(dtype) == 1 ? "{'descr': '|" : "{'descr': '<";
  text.append(type).append("', 'fortran_order': False, 'shape': (");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  }
  return text.append(shape.size() == 1 ? ",), }" : "), }");
}

}  // namespace lockstep::data::detail
