// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/network_error.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::distributed::detail {

// Thrown for bytes that are not a frame, or not the expected one.
class BadFrame : public NetworkError {
 public:
  using NetworkError::NetworkError;
};

// A frame is a length in four bytes, followed by that many bytes. All numbers are little-endian.
class FrameWriter {
 public:
  template <class Kind>
  explicit FrameWriter(Kind kind) : bytes_(4, '\0') {
    number(static_cast<std::uint8_t>(kind));
  }

  template <class Int>
  FrameWriter& number(Int value) {
    for (std::size_t i = 0; i < sizeof(Int); ++i) {
      bytes_.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF));
    }
    return *this;
  }
  FrameWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }

  // The whole frame.
  std::string take() {
    const std::size_t length = bytes_.size() - 4;
    for (std::size_t i = 0; i < 4; ++i) {
      bytes_[i] = static_cast<char>((length >> (8 * i)) & 0xFF);
    }
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Reads what a FrameWriter wrote, after its length. Throws BadFrame if the frame ends early.
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

  // Reads a number of elements; throws if fewer bytes than that are left.
  std::size_t count() {
    const std::size_t count = number<std::uint32_t>();
    check<BadFrame>(count <= rest_.size(), "a frame of ", count, " elements ends early");
    return count;
  }
  void end() const { check<BadFrame>(rest_.empty(), "a frame is too long"); }

 private:
  std::string_view next(std::size_t size) {
    check<BadFrame>(size <= rest_.size(), "a frame ends early");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

// Returns the frame of `bytes` that begins at `at`, and moves `at` past it; nothing if the frame is
// incomplete. Throws BadFrame for one of more than `most` bytes, so that no peer can make this
// process wait for, or keep, that much.
inline std::optional<std::string_view> next_frame(std::string_view bytes, std::size_t& at,
                                                  std::size_t most) {
  const std::string_view rest = bytes.substr(at);
  if (rest.size() < 4) return {};
  const std::size_t length = FrameReader(rest).number<std::uint32_t>();
  check<BadFrame>(length <= most, "a frame of ", length, " bytes, ", most, " is the most");
  if (rest.size() - 4 < length) return {};
  at += 4 + length;
  return rest.substr(4, length);
}

// Waits for a frame. Returns as receive_all; EPROTO for one of more than `most` bytes.
inline int receive_frame(const Descriptor& socket, std::string& frame, std::size_t most,
                         const Deadline& deadline) {
  frame.resize(4);
  int error = receive_all(socket, frame, deadline);
  if (error != 0) return error;
  const std::size_t length = FrameReader(frame).number<std::uint32_t>();
  if (length > most) return EPROTO;
  frame.resize(length);
  return receive_all(socket, frame, deadline);
}

}  // namespace lockstep::distributed::detail
