// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/csv.hpp>
#include <lockstep/data/csv_rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::data {

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

LOCKSTEP_INLINE bool CsvTable::is_missing(std::string_view field) const {
  const auto& values = options_.missing_values;
  return field.find_first_not_of(" \t") == std::string_view::npos ||
         std::find(values.begin(), values.end(), field) != values.end();
}

LOCKSTEP_INLINE CsvTable read_csv(const std::filesystem::path& path, CsvOptions options) {
  return CsvTable(path, std::move(options));
}

}  // namespace lockstep::data
