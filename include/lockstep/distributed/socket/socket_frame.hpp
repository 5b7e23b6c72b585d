// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::distributed::detail {

// Thrown for bytes that are no frame, or not the frame that belongs there.
class BadFrame : public NetworkError {
 public:
  using NetworkError::NetworkError;
};

// A frame is a length in four bytes, followed by as many; all numbers are little-endian.
class FrameWriter {
 public:
  FrameWriter() : bytes_(4, '\0') {}

  template <class Kind>
  explicit FrameWriter(Kind kind) : FrameWriter() {
    number<std::uint8_t>(static_cast<std::uint8_t>(kind));
  }

  template <class Int>
  FrameWriter& number(Int value) {
    for (std::size_t i = 0; i < sizeof(Int); ++i) {
      bytes_.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF));
    }
    return *this;
  }
  FrameWriter& text(std::string_view value);

  // The whole frame.
  std::string take();

 private:
  std::string bytes_;
};

// Reads what a FrameWriter wrote, without its length. Throws BadFrame where there is less.
class FrameReader {
 public:
  explicit FrameReader(std::string_view frame) : rest_(frame) {}

  template <class Int>
  Int number() {
    std::uint64_t value = 0;
    const std::string_view bytes = next(sizeof(Int));
    for (std::size_t i = 0; i < sizeof(Int); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return static_cast<Int>(value);
  }
  std::string text() { return std::string(next(number<std::uint32_t>())); }

  // Reads a number of elements; throws if the frame has fewer bytes left than that.
  std::size_t count();
  void end() const { check<BadFrame>(rest_.empty(), "a frame is too long"); }

 private:
  std::string_view next(std::size_t size);

  std::string_view rest_;
};

// The length of the frame at the start of `bytes`, without the length's own four bytes; nothing if
// these have not all come. Throws BadFrame if it is more than `most`, so that no peer can make this
// process wait for, or keep, that much.
std::optional<std::size_t> frame_length(std::string_view bytes, std::size_t most);

// Takes a whole frame off the front of `bytes`, from `at` on; nothing if it has not all come.
std::optional<std::string_view> next_frame(std::string_view bytes, std::size_t& at,
                                           std::size_t most);

// Waits for a frame. Returns as receive_all; EPROTO for one of more than `most` bytes.
int receive_frame(const Descriptor& socket, std::string& frame, std::size_t most,
                  const Deadline& deadline);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/socket/impl/socket_frame.ipp>
#endif
