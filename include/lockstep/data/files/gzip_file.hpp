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

// A file read from its beginning to its end, unpacked on the way if it is gzip's, whatever its
// name.
//
// Several gzip streams one after another are one; bytes behind the last that are no such stream are
// ignored, as zlib does.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file and, once it is open, says at which byte of the unpacked stream it was; for a damaged stream
// with zlib's words.
class GzipFile {
 public:
  explicit GzipFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  // How many unpacked bytes have been read.
  std::uint64_t position() const { return position_; }

  // Fills `out`, which the file must have enough bytes for.
  void read(std::span<std::byte> out) { read(out, position_ + out.size()); }

  // The next `count` bytes. Memory is taken as they come, so a count out of a damaged header costs
  // no more than twice what the file really holds.
  std::vector<std::byte> read(std::uint64_t count);

  // All bytes that are left, after which gzip's checksum has held.
  std::string read_rest();

  // Throws unless everything has been read and gzip's checksum holds.
  void expect_end();

 private:
  static constexpr std::uint64_t kUnknown = UINT64_MAX;  // where the file should end

  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  // `end` is the byte up to which the file is needed, for the message.
  void read(std::span<std::byte> out, std::uint64_t end);

  // Fills `out` as far as the file goes and returns how far that is. Small steps: where a stream is
  // damaged, zlib gives nothing of the step.
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

// A tensor of the elements that are left in the file, as a header gives their dtype and shape;
// `big_endian` if the highest byte of each comes first. A bool of any byte but 0 is true.
Tensor read_elements(GzipFile& file, Dtype dtype, const Shape& shape, bool big_endian);

}  // namespace detail

}  // namespace lockstep::data

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/files/impl/gzip_file.ipp>
#endif
