// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE FrameWriter& FrameWriter::text(std::string_view value) {
  number(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

LOCKSTEP_INLINE std::string FrameWriter::take() {
  const std::size_t length = bytes_.size() - 4;
  for (std::size_t i = 0; i < 4; ++i) {
    bytes_[i] = static_cast<char>((length >> (8 * i)) & 0xFF);
  }
  return std::move(bytes_);
}

LOCKSTEP_INLINE std::size_t FrameReader::count() {
  const std::size_t count = number<std::uint32_t>();
  check<BadFrame>(count <= rest_.size(), "a frame of ", count, " elements ends early");
  return count;
}

LOCKSTEP_INLINE std::string_view FrameReader::next(std::size_t size) {
  check<BadFrame>(size <= rest_.size(), "a frame ends early");
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

LOCKSTEP_INLINE std::optional<std::size_t> frame_length(std::string_view bytes, std::size_t most) {
  if (bytes.size() < 4) return {};
  const std::size_t length = FrameReader(bytes.substr(0, 4)).number<std::uint32_t>();
  check<BadFrame>(length <= most, "a frame of ", length, " bytes, ", most, " is the most");
  return length;
}

LOCKSTEP_INLINE std::optional<std::string_view> next_frame(std::string_view bytes, std::size_t& at,
                                                           std::size_t most) {
  const std::string_view rest = bytes.substr(at);
  const auto length = frame_length(rest, most);
  if (!length || rest.size() - 4 < *length) return {};
  at += 4 + *length;
  return rest.substr(4, *length);
}

LOCKSTEP_INLINE int receive_frame(const Descriptor& socket, std::string& frame, std::size_t most,
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
