// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/gzip_file.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

// The text of a CSV file (RFC 4180), and the places of its fields.
//
// Rows end with
// or \r
// ; empty lines and a byte order mark are skipped. A field that begins with a quote ends with one,
// may contain delimiters and line ends, and has two quotes for each one of its own.
//
// **Threads and exceptions.** Any thread may read. A DataError that names the file and the line for
// rows of different lengths and for misplaced quotes and carriage returns.
class CsvRows {
 public:
  CsvRows(std::filesystem::path path, char delimiter)
      : path_(std::move(path)), text_(GzipFile(path_).read_rest()) {
    Scanner(*this, delimiter).run();
  }

  const std::filesystem::path& path() const { return path_; }
  std::size_t rows() const { return rows_.size(); }
  // Fields of each row; 0 if there are no rows.
  std::size_t columns() const { return columns_; }

  // The field without its enclosing quotes; quotes inside are still doubled.
  std::string_view unquoted(std::size_t row, std::size_t column) const {
    const std::size_t first = begin_of(row, column);
    const std::size_t end = column + 1 < columns_ ? begin_of(row, column + 1) - 1 : rows_[row].end;
    const std::string_view field = std::string_view(text_).substr(first, end - first);
    return field.starts_with('"') ? field.substr(1, field.size() - 2) : field;
  }

  std::string text(std::size_t row, std::size_t column) const {
    const std::string_view field = unquoted(row, column);
    std::string result;
    for (std::size_t i = 0; i < field.size(); ++i) {
      result += field[i];
      if (field[i] == '"') ++i;
    }
    return result;
  }

  // The line, from 1, in which the field begins.
  std::size_t line_of(std::size_t row, std::size_t column) const {
    const auto at = [this](std::size_t place) {
      return text_.begin() + static_cast<std::ptrdiff_t>(place);
    };
    const auto lines = std::count(at(begin_of(row, 0)), at(begin_of(row, column)), '\n');
    return rows_[row].line + static_cast<std::size_t>(lines);
  }

  template <class... Parts>
  [[noreturn]] void fail(std::size_t line, const Parts&... parts) const {
    lockstep::detail::fail<DataError>(path_.string(), ": line ", line, ": ", parts...);
  }

 private:
  struct Row {
    std::size_t end;   // of its last field
    std::size_t line;  // its first
  };

  // Goes through the text once.
  class Scanner {
   public:
    Scanner(CsvRows& rows, char delimiter) : rows_(rows), text_(rows.text_), delimiter_(delimiter) {
      for (const char c : {delimiter, '\n', '\r', '"'}) ends_[static_cast<unsigned char>(c)] = true;
    }

    void run() {
      if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
      while (at_ < text_.size()) {
        if (!skip_line_end()) scan_row();
      }
    }

   private:
    bool skip_line_end() {
      const std::string_view rest = text_.substr(at_);
      const std::size_t length = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
      at_ += length;
      line_ += length > 0 ? 1 : 0;
      return length > 0;
    }

    void scan_row() {
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

    // Moves to the end of the field that begins here; true if another one follows.
    bool scan_field() {
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
      rows_.fail(line_, "field ", column, " has a ",
                 text_[at_] == '"' ? "quote" : "carriage return",
                 " in it, so the whole of it has to be in quotes");
    }

    void skip_quoted() {
      const std::size_t line = line_;
      while (true) {
        const std::size_t quote = text_.find('"', at_ + 1);
        if (quote == std::string_view::npos) {
          rows_.fail(line, "a quote that begins a field is not followed by one that ends it");
        }
        line_ += static_cast<std::size_t>(
            std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                       text_.begin() + static_cast<std::ptrdiff_t>(quote), '\n'));
        at_ = quote + 1;
        if (at_ == text_.size() || text_[at_] != '"') return;
      }
    }

    CsvRows& rows_;
    const std::string_view text_;
    const char delimiter_;
    std::array<bool, 256> ends_{};  // the characters that may end a field without quotes
    std::size_t at_ = 0;
    std::size_t line_ = 1;
  };

  std::size_t begin_of(std::size_t row, std::size_t column) const {
    return begins_[row * columns_ + column];
  }

  const std::filesystem::path path_;
  const std::string text_;
  std::size_t columns_ = 0;
  std::vector<std::size_t> begins_;  // where each field begins
  std::vector<Row> rows_;
};

}  // namespace lockstep::data::detail
