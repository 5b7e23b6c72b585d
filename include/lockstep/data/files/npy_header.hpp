// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep::data::detail {

// The header of a .npy file, a Python literal: "{'descr': '<f4', 'fortran_order': False, 'shape':
// (2, 3), }".
struct NpyHeader {
  Dtype dtype = Dtype::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

// NumPy's names of the dtypes. NumPy has no bf16; packages that add one call it V2, two bytes of
// anything.
inline constexpr std::array<std::pair<std::string_view, Dtype>, 8> kNpyDtypes{{
    {"f4", Dtype::f32},
    {"f8", Dtype::f64},
    {"f2", Dtype::f16},
    {"V2", Dtype::bf16},
    {"i8", Dtype::i64},
    {"i4", Dtype::i32},
    {"u1", Dtype::u8},
    {"b1", Dtype::boolean},
}};

// Parses the literal. A DataError, which names the file, `name`, unless the text is such a header
// with a dtype and shape that tensors can have.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
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

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("has no '", c, "' at character ", at_);
  }

  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("has no string at character ", at_);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("has a string without an end at character ", at_);
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }

  bool boolean() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    const bool value = rest.starts_with("True");
    if (!value && !rest.starts_with("False")) fail("has neither True nor False at character ", at_);
    at_ += value ? 4 : 5;
    return value;
  }

  Shape shape() {
    Shape shape;
    expect('(');
    while (!take(')')) {
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

  void descr(NpyHeader& header) {
    if (peek() == '[') fail("is of a structured array, expected one of plain numbers");
    const std::string_view descr = string();
    for (const auto& [type, dtype] : kNpyDtypes) {
      if (!descr.ends_with(type) || descr.size() != type.size() + 1) continue;
      const bool big_endian = descr[0] == '>';
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

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(name_, ": the header ", parts...);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

// The literal as NumPy writes it, without the blanks at its end.
inline std::string npy_header(Dtype dtype, const Shape& shape) {
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
