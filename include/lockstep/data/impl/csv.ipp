// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/csv.hpp>
#include <lockstep/data/files/csv_rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep::data {

namespace detail {

inline std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Reads all of `text` as a T; a plus sign is allowed. A number too small for a T is 0, or the T
// nearest to 0.
template <class T>
std::errc parse_number(std::string_view text, T& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool whole = stop == end && !text.ends_with(')');  // not nan(1)
  if (!whole || error == std::errc::invalid_argument) return std::errc::invalid_argument;
  if (error == std::errc() || std::integral<T>) return error;
  // from_chars does not say whether it is too large or too small; a stream does.
  std::istringstream in{std::string(text)};
  in.exceptions(std::ios::badbit);
  in.imbue(std::locale::classic());
  return in >> value ? std::errc() : error;
}

}  // namespace detail

LOCKSTEP_INLINE CsvTable::CsvTable(const std::filesystem::path& path, CsvOptions options)
    : options_(std::move(options)) {
  const char delimiter = options_.delimiter;
  check<ValueError>(delimiter != '"' && delimiter != '\n' && delimiter != '\r',
                    "CsvTable: a quote or a line end cannot be the delimiter");
  rows_ = std::make_shared<const detail::CsvRows>(path, delimiter);
  if (!options_.header) return;
  check<DataError>(rows_->rows() > 0, path.string(), ": is empty, expected a row of names");
  for (std::size_t i = 0; i < rows_->columns(); ++i) names_.push_back(rows_->text(0, i));
}

LOCKSTEP_INLINE std::int64_t CsvTable::size() const {
  return static_cast<std::int64_t>(rows_->rows() - first_row());
}

LOCKSTEP_INLINE std::int64_t CsvTable::column_count() const {
  return static_cast<std::int64_t>(rows_->columns());
}

LOCKSTEP_INLINE Tensor CsvTable::column(const CsvColumn& column, Dtype dtype) const {
  return read({number_of(column)}, {size()}, dtype);
}

LOCKSTEP_INLINE Tensor CsvTable::columns(const std::vector<CsvColumn>& columns, Dtype dtype) const {
  std::vector<std::size_t> numbers;
  for (const CsvColumn& column : columns) numbers.push_back(number_of(column));
  return read(numbers, {size(), static_cast<std::int64_t>(numbers.size())}, dtype);
}

LOCKSTEP_INLINE Tensor CsvTable::columns(Dtype dtype) const {
  std::vector<CsvColumn> all;
  for (std::int64_t i = 0; i < column_count(); ++i) all.emplace_back(i);
  return columns(all, dtype);
}

LOCKSTEP_INLINE std::vector<std::string> CsvTable::strings(const CsvColumn& column) const {
  const std::size_t number = number_of(column);
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(size()));
  for (std::size_t row = first_row(); row < rows_->rows(); ++row) {
    result.push_back(rows_->text(row, number));
  }
  return result;
}

LOCKSTEP_INLINE std::size_t CsvTable::number_of(const CsvColumn& column) const {
  if (!column.named_) {
    check<IndexError>(column.number_ >= 0 && column.number_ < column_count(),
                      rows_->path().string(), ": there is no column ", column.number_,
                      ", there are ", column_count());
    return static_cast<std::size_t>(column.number_);
  }
  const auto found = std::find(names_.begin(), names_.end(), column.name_);
  check<IndexError>(found != names_.end(), rows_->path().string(), ": there is no column \"",
                    column.name_, names_.empty() ? "\", nor names of columns" : "\"");
  check<ValueError>(std::find(found + 1, names_.end(), column.name_) == names_.end(),
                    rows_->path().string(), ": two columns are called \"", column.name_,
                    "\": give the column's number");
  return static_cast<std::size_t>(found - names_.begin());
}

template <class T>
T CsvTable::number(std::size_t row, std::size_t column) const {
  T value{};
  const std::errc error =
      detail::parse_number(detail::without_blanks(rows_->unquoted(row, column)), value);
  if (error == std::errc() && options_.missing_values.empty()) [[likely]]
    return value;
  const std::string text = rows_->text(row, column);
  const std::string_view field = detail::without_blanks(text);
  const auto is_field = [field](std::string_view listed) {
    return detail::without_blanks(listed) == field;
  };
  if (field.empty() || lockstep::detail::any_of(options_.missing_values, is_field)) {
    if constexpr (std::floating_point<T>) {
      if (options_.missing == CsvMissing::nan) return std::numeric_limits<T>::quiet_NaN();
    }
    fail(row, column, "the value is missing",
         options_.missing == CsvMissing::nan ? ", and whole numbers have no NaN" : "");
  }
  if (error == std::errc()) return value;
  fail(row, column, "expected a number of ", dtype_of<T>, ", got \"", field.substr(0, 40), "\"",
       error == std::errc::result_out_of_range ? ", which is out of its range" : "");
}

LOCKSTEP_INLINE Tensor CsvTable::read(const std::vector<std::size_t>& columns, const Shape& shape,
                                      Dtype dtype) const {
  Tensor result = empty(shape, {.dtype = dtype});
  dispatch_numeric(dtype, "CsvTable", [&]<class T>(T) {
    T* out = result.mutable_data_ptr<T>();
    for (std::size_t row = first_row(); row < rows_->rows(); ++row) {
      for (const std::size_t column : columns) *out++ = number<T>(row, column);
    }
  });
  return result;
}

template <class... Parts>
[[noreturn]] void CsvTable::fail(std::size_t row, std::size_t column, const Parts&... parts) const {
  const std::string name = names_.empty() ? "" : " (\"" + names_[column] + "\")";
  rows_->fail(rows_->line_of(row, column), "column ", column, name, ": ", parts...);
}

LOCKSTEP_INLINE CsvTable read_csv(const std::filesystem::path& path, CsvOptions options) {
  return CsvTable(path, std::move(options));
}

}  // namespace lockstep::data
