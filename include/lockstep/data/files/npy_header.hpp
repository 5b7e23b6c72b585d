// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::data::detail {

// What the header of a .npy file says: "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
// }", a literal of Python's.
struct NpyHeader {
  Dtype dtype = Dtype::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

// NumPy's names of the dtypes. NumPy has no bf16: packages that add one call it V2, two bytes of
// something.
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

// Reads the literal. `name` is the file's, for errors: a DataError unless the text is such a header
// of a dtype and shape that tensors can have.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse();

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek();
  bool take(char c);
  void expect(char c);

  std::string_view string();

  bool boolean();

  Shape shape();

  void descr(NpyHeader& header);

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(name_, ": the header ", parts...);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

// The literal as NumPy writes it, up to and without the blanks at its end.
std::string npy_header(Dtype dtype, const Shape& shape);

}  // namespace lockstep::data::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/files/impl/npy_header.ipp>
#endif
