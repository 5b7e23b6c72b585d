// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

namespace example {

// A table of how training went, as comma-separated values: a row for each step, and one with a
// score after each epoch. Numbers have all their digits.
//
// Every row is handed to the system whole, in one write, before the next step: whatever then
// becomes of the program, the file has whole lines.
class MetricsFile {
 public:
  // `rate` and `score` are names of columns, such as "images_per_second" and "test_accuracy".
  // Without a path nothing is written. A file that is there is replaced.
  MetricsFile(const std::filesystem::path& path, const std::string& rate, const std::string& score)
      : path_(path) {
    if (path.empty()) return;
    errno = 0;
    file_.open(path);
    write("step,epoch,loss," + rate + ',' + score + '\n');
  }

  void add_step(std::int64_t step, std::int64_t epoch, double loss, double rate) {
    row(step, ',', epoch, ',', loss, ',', rate, ",\n");
  }
  void add_score(std::int64_t step, std::int64_t epoch, double score) {
    row(step, ',', epoch, ",,,", score, '\n');
  }

 private:
  template <class... Parts>
  void row(const Parts&... parts) {
    if (path_.empty()) return;
    std::ostringstream out;
    out.precision(std::numeric_limits<double>::max_digits10);
    (out << ... << parts);
    write(out.str());
  }

  void write(const std::string& line) {
    file_ << line << std::flush;
    if (!file_) {
      throw std::runtime_error("cannot write " + path_.string() + ": " + std::strerror(errno));
    }
  }

  const std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace example
