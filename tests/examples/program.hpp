// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include "data/files.hpp"

#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs an example as a user would.
namespace lockstep::testing {

struct ProgramResult {
  int status = -1;
  std::string out;
  std::string err;
};

// `command` is a program of examples/ and its arguments, for a shell.
inline ProgramResult run_example(const std::string& command) {
  const TempDirectory directory;
  const std::string err = (directory / "stderr").string();
  const std::string line = LOCKSTEP_EXAMPLES_DIR "/" + command + " 2>" + err + " </dev/null";
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw Error("cannot run " + line);
  ProgramResult result;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.out.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.err = read_file(err);
  return result;
}

// A terminal for a program to write to, which keeps a few KiB until they are read.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) {
      throw Error("there is no terminal to be had");
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { ::close(master_); }

  std::string name() const { return ::ptsname(master_); }

  // What was written by programs that have ended.
  std::string read() const {
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t count = 0;
    while ((count = ::read(master_, buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int master_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::testing
