// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/data/csv_rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
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
#include <vector>

namespace lockstep::data {

// What a missing value is.
enum class CsvMissing { error, nan };

struct CsvOptions {
  char delimiter = ',';
  bool header = true;  // the first row has the columns' names
  CsvMissing missing = CsvMissing::error;
  std::vector<std::string> missing_values{};  // texts that stand for one, beside an empty field
};

// A column of a CSV file, by its number from 0 or by its name.
class CsvColumn {
 public:
  template <std::integral Number>
  CsvColumn(Number number) : number_(static_cast<std::int64_t>(number)) {}
  template <std::convertible_to<std::string_view> Name>
  CsvColumn(const Name& name) : named_(true), name_(std::string_view(name)) {}

 private:
  friend class CsvTable;

  bool named_ = false;
  std::int64_t number_ = -1;
  std::string name_;
};

namespace detail {

// Reads the whole of `text` as a T; blanks around it and a plus sign are left out. What is too
// small for a T is 0, or as near to 0 as a T can be.
template <class T>
std::errc parse_number(std::string_view text, T& value) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return std::errc::invalid_argument;
  if (error == std::errc() || std::integral<T>) return error;
  // from_chars does not say whether it is too large or too small; a stream does.
  std::istringstream in{std::string(text)};
  in.exceptions(std::ios::badbit);
  in.imbue(std::locale::classic());
  return in >> value ? std::errc() : error;
}

}  // namespace detail

// A CSV file in memory, whose columns become tensors as they are asked for.
//
// Columns of numbers are f32 (or f64, i64, i32), rows × columns if several are asked for at once.
// An empty field, or one of `missing_values`, is a missing value: a DataError or, if asked for,
// NaN, which only f32 and f64 have. Holds a handle: copies share the file's text.
//
// **Torch counterpart.** None; what pandas.read_csv is used for beside torch.
// **Devices and streams.** Tensors are on `cpu`.
// **Threads and exceptions.** Any thread may read. A DataError that names file, line and column for
// a field that is no number of the dtype asked for, and for a missing value; IndexError for a
// column that is not there, ValueError for a name that two columns have; DtypeError for another
// dtype.
// **Example.**
//   const ls::data::CsvTable iris = ls::data::read_csv("iris.csv.gz");
//   ls::data::TensorDataset dataset{iris.columns({"length", "width"}),
//                                   iris.column("class", ls::Dtype::i64)};
class CsvTable {
 public:
  explicit CsvTable(const std::filesystem::path& path, CsvOptions options = {});

  // Rows, without that of the names.
  std::int64_t size() const { return static_cast<std::int64_t>(rows_->rows() - first_row()); }
  std::int64_t column_count() const { return static_cast<std::int64_t>(rows_->columns()); }
  // Empty if there is no row of names.
  const std::vector<std::string>& names() const { return names_; }

  // A column as a vector.
  Tensor column(const CsvColumn& column, Dtype dtype = Dtype::f32) const;

  // Columns side by side, in the order given: (rows, columns).
  Tensor columns(const std::vector<CsvColumn>& columns, Dtype dtype = Dtype::f32) const;

  // All columns.
  Tensor columns(Dtype dtype = Dtype::f32) const;

  // A column as text, without the quotes around it.
  std::vector<std::string> strings(const CsvColumn& column) const;

 private:
  std::size_t first_row() const { return options_.header ? 1 : 0; }

  std::size_t number_of(const CsvColumn& column) const;

  Tensor read(const std::vector<std::size_t>& columns, const Shape& shape, Dtype dtype) const;

  template <class T>
  T number(std::size_t row, std::size_t column) const {
    const std::string_view field = rows_->unquoted(row, column);
    T value{};
    const std::errc error = detail::parse_number(field, value);
    if (error == std::errc() && options_.missing_values.empty()) [[likely]]
      return value;
    if (is_missing(field)) {
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

  bool is_missing(std::string_view field) const;

  template <class... Parts>
  [[noreturn]] void fail(std::size_t row, std::size_t column, const Parts&... parts) const {
    const std::string name = names_.empty() ? "" : " (\"" + names_[column] + "\")";
    rows_->fail(rows_->line_of(row, column), "column ", column, name, ": ", parts...);
  }

  CsvOptions options_;
  std::shared_ptr<const detail::CsvRows> rows_;
  std::vector<std::string> names_;
};

// The CSV file, plain or packed by gzip whatever its name; the file is read at once.
CsvTable read_csv(const std::filesystem::path& path, CsvOptions options = {});

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/csv.ipp>
#endif
