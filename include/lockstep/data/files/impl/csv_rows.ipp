// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/csv_rows.hpp>
#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::data::detail {

LOCKSTEP_INLINE CsvRows::CsvRows(std::filesystem::path path, char delimiter)
    : path_(std::move(path)), text_(GzipFile(path_).read_rest()) {
  Scanner(*this, delimiter).run();
}

LOCKSTEP_INLINE std::string_view CsvRows::raw(std::size_t row, std::size_t column) const {
  const std::size_t first = begin_of(row, column);
  const std::size_t end = column + 1 < columns_ ? begin_of(row, column + 1) - 1 : rows_[row].end;
  return std::string_view(text_).substr(first, end - first);
}

LOCKSTEP_INLINE std::string_view CsvRows::unquoted(std::size_t row, std::size_t column) const {
  const std::string_view field = raw(row, column);
  return field.starts_with('"') ? field.substr(1, field.size() - 2) : field;
}

LOCKSTEP_INLINE std::string CsvRows::text(std::size_t row, std::size_t column) const {
  const std::string_view field = unquoted(row, column);
  std::string result(field);
  if (!raw(row, column).starts_with('"')) return result;
  std::size_t length = 0;
  for (std::size_t i = 0; i < field.size(); ++i) {
    result[length++] = field[i];
    if (field[i] == '"') ++i;
  }
  result.resize(length);
  return result;
}

LOCKSTEP_INLINE std::size_t CsvRows::line_of(std::size_t row, std::size_t column) const {
  const auto at = [this](std::size_t place) {
    return text_.begin() + static_cast<std::ptrdiff_t>(place);
  };
  const auto lines = std::count(at(begin_of(row, 0)), at(begin_of(row, column)), '\n');
  return rows_[row].line + static_cast<std::size_t>(lines);
}

LOCKSTEP_INLINE CsvRows::Scanner::Scanner(CsvRows& rows, char delimiter)
    : rows_(rows), text_(rows.text_), delimiter_(delimiter) {
  for (const char c : {delimiter, '\n', '\r', '"'}) ends_[static_cast<unsigned char>(c)] = true;
}

LOCKSTEP_INLINE void CsvRows::Scanner::run() {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  while (at_ < text_.size()) {
    if (!skip_line_end()) scan_row();
  }
}

LOCKSTEP_INLINE bool CsvRows::Scanner::skip_line_end() {
  const std::string_view rest = text_.substr(at_);
  const std::size_t length = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
  at_ += length;
  line_ += length > 0 ? 1 : 0;
  return length > 0;
}

LOCKSTEP_INLINE void CsvRows::Scanner::scan_row() {
  const std::size_t line = line_;
  const std::size_t before = rows_.begins_.size();
  while (scan_field()) ++at_;
  rows_.rows_.push_back({at_, line});
  const std::size_t columns = rows_.begins_.size() - before;
  if (rows_.rows_.size() == 1) rows_.columns_ = columns;
  if (columns != rows_.columns_) {
    rows_.fail(line, "the row has ", columns, columns == 1 ? " field" : " fields",
               ", but the first row has ", rows_.columns_);
  }
}

LOCKSTEP_INLINE bool CsvRows::Scanner::scan_field() {
  rows_.begins_.push_back(at_);
  if (at_ < text_.size() && text_[at_] == '"') {
    skip_quoted();
  } else {
    while (at_ < text_.size() && !ends_[static_cast<unsigned char>(text_[at_])]) ++at_;
  }
  if (at_ == text_.size() || text_[at_] == '\n') return false;
  if (text_[at_] == delimiter_) return true;
  if (text_.substr(at_).starts_with("\r\n")) return false;
  const std::size_t column = rows_.begins_.size() - 1 - rows_.rows_.size() * rows_.columns_;
  if (text_[rows_.begins_.back()] == '"') {
    rows_.fail(line_, "field ", column, " goes on after the quote that ends it");
  }
  rows_.fail(line_, "field ", column, " has a ", text_[at_] == '"' ? "quote" : "carriage return",
             " in it, so the whole of it has to be in quotes");
}

LOCKSTEP_INLINE void CsvRows::Scanner::skip_quoted() {
  const std::size_t line = line_;
  while (true) {
    const std::size_t quote = text_.find('"', at_ + 1);
    if (quote == std::string_view::npos) {
      rows_.fail(line, "a quote that begins a field is not followed by one that ends it");
    }
    line_ += static_cast<std::size_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                 text_.begin() + static_cast<std::ptrdiff_t>(quote),
                                                 '\n'));
    at_ = quote + 1;
    if (at_ == text_.size() || text_[at_] != '"') return;
  }
}

}  // namespace lockstep::data::detail
