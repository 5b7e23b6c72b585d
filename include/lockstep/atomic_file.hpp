// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep::detail {

// A file that appears under its name whole or not at all: its content is written to a temporary
// file in the same folder, which `commit` renames. Without a commit the temporary file is removed,
// and a file that has the name already is untouched.
//
// After `commit` the file survives a loss of power. It has the permissions of the file that it
// replaces, or else those of a new file; a symbolic link of that name is itself replaced. A path
// that names no file of a disk, such as a pipe, or a descriptor of this process, such as
// /dev/stdout, is not replaced: `write` appends to it.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file.
class AtomicFile : NonCopyable {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);

  // Ends the writing and gives the file its name. If only the last step fails, which writes the
  // folder to the disk, the new file is in place but may not survive a loss of power.
  void commit();

 private:
  // Opens the path for appending, and returns true, if it names something that is neither a file
  // nor a folder, or a descriptor of this process.
  bool opens_in_place();

  // True if the path is a symbolic link in /proc, or leads to one: /dev/stdout does, for example.
  bool names_descriptor() const;

  // Creates the temporary file with the permissions of a new file; mkstemp would give others.
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
#include <lockstep/impl/atomic_file.ipp>
#endif
