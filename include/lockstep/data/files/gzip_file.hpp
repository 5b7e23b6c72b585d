// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::data {

// A file read from beginning to end, decompressed on the way if it is gzip's, whatever its name.
//
// Concatenated gzip streams count as one; other bytes after the last are ignored, as zlib does.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file and, once it is open, the byte of the decompressed stream; for a damaged stream with zlib's
// words.
class GzipFile {
 public:
  explicit GzipFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  // The number of decompressed bytes read so far.
  std::uint64_t position() const { return position_; }

  // Fills `out`; throws if the file has too few bytes.
  void read(std::span<std::byte> out) { read(out, position_ + out.size()); }

  // Reads the next `count` bytes. Memory grows as they come, so a count from a damaged header costs
  // at most twice what the file really holds.
  std::vector<std::byte> read(std::uint64_t count);

  // Reads all bytes that are left, and checks gzip's checksum.
  std::string read_rest();

  // Throws unless everything has been read and gzip's checksum holds.
  void expect_end();

 private:
  static constexpr std::uint64_t kUnknown = UINT64_MAX;  // an unknown expected end

  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  // `end`, for messages, is the byte up to which the file is needed.
  void read(std::span<std::byte> out, std::uint64_t end);

  // Fills `out` as far as the file goes and returns how far that is. It reads in small steps, since
  // zlib returns nothing of a step that meets damage.
  std::size_t read_some(std::span<std::byte> out, std::uint64_t end);

  [[noreturn]] void fail_truncated(std::uint64_t end, const char* text) const;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(lockstep::detail::str(path_.string(), ": ", parts...));
  }

  std::filesystem::path path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
  std::uint64_t position_ = 0;
};

namespace detail {

// Reads the rest of the file as a tensor of this dtype and shape. `big_endian` means that each
// element's highest byte comes first. A bool of any byte but 0 is true.
Tensor read_elements(GzipFile& file, Dtype dtype, const Shape& shape, bool big_endian);

}  // namespace detail

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/files/impl/gzip_file.ipp>
#endif
