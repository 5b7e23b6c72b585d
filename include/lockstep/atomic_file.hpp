// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep::detail {

// A file that appears under its name whole or not at all: it is written under a temporary name in
// the same folder and renamed by `commit`. Without a commit the temporary file is removed, and what
// had the name before is untouched.
//
// After `commit` the file survives a loss of power. It has the permissions of the one that it
// replaces, or those of any new file; a symbolic link of that name is itself replaced. What is no
// file of a disk, such as a pipe, or is open in the process, such as /dev/stdout, is written as it
// is, behind what is there.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);

  // The end of the writing. If only the last of its steps fails, the new file is in place, but may
  // not survive a loss of power.
  void commit();

 private:
  // True if the path is one of something to write to that is neither a file nor a folder, or that
  // the process has open.
  bool opens_in_place();

  // True if the path is a descriptor's, or a link that leads to one.
  bool names_descriptor() const;

  // mkstemp would give permissions other than a new file's.
  void open_temporary();

  void sync_folder() const;

  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;  // empty: there is none
  int descriptor_ = -1;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/atomic_file.ipp>
#endif
