// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <zlib.h>

namespace lockstep::data {

// A file read from its beginning to its end, unpacked on the way if it is gzip's, whatever its
// name.
//
// Several gzip streams one after another are one; bytes behind the last that are no such stream are
// ignored, as gzip does.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file and says at which byte of the unpacked stream it was; for a damaged stream with zlib's
// words.
class GzipFile {
 public:
  explicit GzipFile(std::filesystem::path path) : path_(std::move(path)) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) fail("cannot be opened: ", std::strerror(errno != 0 ? errno : ENOMEM));
    gzbuffer(file_.get(), 1U << 17);
  }

  const std::filesystem::path& path() const { return path_; }
  // How many unpacked bytes have been read.
  std::uint64_t position() const { return position_; }

  // Fills `out`, which the file must have enough bytes for.
  void read(std::span<std::byte> out) { read(out, position_ + out.size()); }

  // The next `count` bytes. Memory is taken as they come, so a count out of a damaged header costs
  // no more than twice what the file really holds.
  std::vector<std::byte> read(std::uint64_t count) {
    constexpr std::uint64_t kFirst = 1U << 16;
    const std::uint64_t end = position_ + count;
    std::vector<std::byte> bytes;
    while (bytes.size() < count) {
      const std::size_t before = bytes.size();
      const auto step = std::min(count - before, std::max<std::uint64_t>(kFirst, before));
      bytes.reserve(before + step);  // resize alone could take twice that
      bytes.resize(before + step);
      read(std::span(bytes).subspan(before), end);
    }
    return bytes;
  }

  // All bytes that are left; gzip's checksum holds then.
  std::string read_rest() {
    std::string bytes;
    for (std::size_t end = 1U << 16;; end *= 2) {
      const std::size_t before = bytes.size();
      bytes.resize(end);
      const auto room = std::as_writable_bytes(std::span(bytes)).subspan(before);
      const std::size_t got = read_some(room, kUnknown);
      if (got == room.size()) continue;
      bytes.resize(before + got);
      return bytes;
    }
  }

  // Throws unless everything has been read and gzip's checksum holds.
  void expect_end() {
    std::byte extra{};
    const std::uint64_t end = position_;
    if (read_some({&extra, 1}, end) != 0) fail("goes on after the ", end, " bytes expected");
  }

 private:
  static constexpr std::uint64_t kUnknown = UINT64_MAX;  // where the file should end

  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  // `end` is what the file is known to need, for the message.
  void read(std::span<std::byte> out, std::uint64_t end) {
    if (read_some(out, end) != out.size()) fail_truncated(end, "end of file");
  }

  // Fills `out` as far as the file goes and returns how far that is. Small steps: where a stream is
  // damaged, zlib gives nothing of the step.
  std::size_t read_some(std::span<std::byte> out, std::uint64_t end) {
    constexpr std::size_t kStep = 1U << 16;
    std::size_t done = 0;
    while (done < out.size()) {
      const auto step = static_cast<unsigned>(std::min(out.size() - done, kStep));
      const int got = gzread(file_.get(), out.data() + done, step);
      if (got > 0) {
        done += static_cast<std::size_t>(got);
        position_ += static_cast<std::uint64_t>(got);
      }
      if (got < static_cast<int>(step)) {
        check_stream(end);
        break;
      }
    }
    return done;
  }

  void check_stream(std::uint64_t end) const {
    int status = Z_OK;
    const char* text = gzerror(file_.get(), &status);
    if (status == Z_OK || status == Z_STREAM_END) return;
    if (status == Z_BUF_ERROR) fail_truncated(end, text);
    if (status == Z_ERRNO) fail("cannot be read after byte ", position_, ": ", text);
    fail("corrupt after byte ", position_, " of the unpacked stream (", text, ")");
  }

  [[noreturn]] void fail_truncated(std::uint64_t end, const char* text) const {
    if (end == kUnknown) {
      fail("truncated: ends at byte ", position_, " of the unpacked stream (", text, ")");
    }
    if (position_ == end) fail("truncated: gzip's checksum after byte ", end, " is cut off");
    fail("truncated: ends at byte ", position_, " of the unpacked stream, expected ", end, " (",
         text, ")");
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(lockstep::detail::str(path_.string(), ": ", parts...));
  }

  std::filesystem::path path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::data
