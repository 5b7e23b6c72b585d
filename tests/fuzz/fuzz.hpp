// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

// What the programs share that libFuzzer calls with bytes of its own. Whatever the bytes are, a
// reader gives a value or throws what it documents; any other exception ends the program, as
// AddressSanitizer and UndefinedBehaviorSanitizer do.
namespace lockstep::fuzz {

[[noreturn]] inline void give_up(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// A file in memory that a path leads to.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) {
    if (descriptor_ < 0) give_up("no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  void set(std::string_view bytes) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      give_up("cannot write a file in memory");
    }
  }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  const int descriptor_;
};

// The bytes but the first, which chooses what to do with them.
struct Choice {
  Choice(const std::uint8_t* bytes, std::size_t size)
      : number(size == 0 ? 0 : *bytes), rest(reinterpret_cast<const char*>(bytes), size) {
    if (size > 0) rest.remove_prefix(1);
  }

  unsigned number;
  std::string_view rest;
};

}  // namespace lockstep::fuzz
