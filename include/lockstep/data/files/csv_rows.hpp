// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data::detail {

// The text of a CSV file (RFC 4180), and where the fields of its rows are in it.
//
// Rows end with \n or \r\n; empty lines are passed over, and so is a byte order mark. A field that
// begins with a quote ends with one, may have delimiters and line ends in between, and two quotes
// for each one of its own.
//
// **Threads and exceptions.** Any thread may read. A DataError that names the file and the line for
// rows of different lengths and for quotes and carriage returns where none may be.
class CsvRows {
 public:
  CsvRows(std::filesystem::path path, char delimiter);

  const std::filesystem::path& path() const { return path_; }
  std::size_t rows() const { return rows_.size(); }
  // Fields of each row; 0 if there are no rows.
  std::size_t columns() const { return columns_; }

  // The field as it is in the file, quotes included.
  std::string_view raw(std::size_t row, std::size_t column) const;

  // The field without the quotes around it; quotes inside are still two each.
  std::string_view unquoted(std::size_t row, std::size_t column) const;

  std::string text(std::size_t row, std::size_t column) const;

  // The line, from 1, in which the field begins.
  std::size_t line_of(std::size_t row, std::size_t column) const;

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
    Scanner(CsvRows& rows, char delimiter);

    void run();

   private:
    bool skip_line_end();

    void scan_row();

    // Goes to the end of the field that begins here; true if another one follows.
    bool scan_field();

    void skip_quoted();

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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/files/impl/csv_rows.ipp>
#endif
