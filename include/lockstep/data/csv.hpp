// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

namespace detail {
class CsvRows;  // data/files/csv_rows.hpp
}

// What a missing value is.
enum class CsvMissing { error, nan };

struct CsvOptions {
  char delimiter = ',';
  bool header = true;  // the first row has the columns' names
  CsvMissing missing = CsvMissing::error;
  std::vector<std::string> missing_values{};  // texts, besides "", of a missing value
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

// A CSV file in memory, whose columns become tensors on request.
//
// Columns of numbers are f32, or f64, i64 or i32. An empty field, or one of `missing_values`, is a
// missing value: a DataError or, on request, NaN, which only f32 and f64 have. Empty lines are
// skipped, even in a file of one column. It is a handle: copies share the file's text.
//
// **Torch counterpart.** None; like pandas.read_csv.
// **Devices and streams.** Tensors are on `cpu`.
// **Threads and exceptions.** Any thread may read. A DataError that names file, line and column for
// a field that is not a number of the requested dtype, and for a missing value; one that names the
// file for a file that is not such a table. An IndexError for a column that does not exist, a
// ValueError for a name that two columns have, and for a delimiter that is a quote or a line end, a
// DtypeError for another dtype.
// **Example.**
//   const ls::data::CsvTable iris = ls::data::read_csv("iris.csv.gz");
//   ls::data::TensorDataset dataset{iris.columns({"length", "width"}),
//                                   iris.column("class", ls::Dtype::i64)};
class CsvTable {
 public:
  explicit CsvTable(const std::filesystem::path& path, CsvOptions options = {});

  // The number of rows, without that of the names.
  std::int64_t size() const;
  std::int64_t column_count() const;
  // Empty if there is no row of names.
  const std::vector<std::string>& names() const { return names_; }

  // A column as a 1-dimensional tensor.
  Tensor column(const CsvColumn& column, Dtype dtype = Dtype::f32) const;

  // Columns in the given order, as a tensor (rows, columns).
  Tensor columns(const std::vector<CsvColumn>& columns, Dtype dtype = Dtype::f32) const;

  // All columns.
  Tensor columns(Dtype dtype = Dtype::f32) const;

  // A column as text, without enclosing quotes.
  std::vector<std::string> strings(const CsvColumn& column) const;

 private:
  std::size_t first_row() const { return options_.header ? 1 : 0; }

  std::size_t number_of(const CsvColumn& column) const;

  Tensor read(const std::vector<std::size_t>& columns, const Shape& shape, Dtype dtype) const;

  template <class T>
  T number(std::size_t row, std::size_t column) const;

  template <class... Parts>
  [[noreturn]] void fail(std::size_t row, std::size_t column, const Parts&... parts) const;

  CsvOptions options_;
  std::shared_ptr<const detail::CsvRows> rows_;
  std::vector<std::string> names_;
};

// Reads a CSV file, plain or gzip-compressed whatever its name, at once.
CsvTable read_csv(const std::filesystem::path& path, CsvOptions options = {});

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/impl/csv.ipp>
#endif
