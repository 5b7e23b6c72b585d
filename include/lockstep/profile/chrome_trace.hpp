// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/timeline.hpp>

#include <errno.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

// The Trace Event Format that chrome://tracing and Perfetto read.
namespace lockstep::profile::detail {

// The length in bytes of the UTF-8 sequence that `text`, which is not empty, begins with; 0 if it
// begins with none.
inline std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  unsigned code = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const bool shortest = code >= (length == 4 ? 0x10000U : length == 3 ? 0x800U : 0x80U);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return shortest && !surrogate && code < 0x110000 ? length : 0;
}

// `text` as a JSON string, in quotes; a byte that is not UTF-8 becomes the replacement character.
inline std::string json_text(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      result += "\\ufffd";
    } else if (first < 0x20) {
      result += {'\\', 'u', '0', '0', kHex[first >> 4U], kHex[first & 15U]};
    } else {
      if (first == '"' || first == '\\') result += '\\';
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + '"';
}

// Nanoseconds as microseconds with three decimals.
inline std::string microseconds(std::int64_t nanoseconds) {
  const auto magnitude = static_cast<std::uint64_t>(nanoseconds < 0 ? -nanoseconds : nanoseconds);
  const std::string decimals = std::to_string(magnitude % 1000);
  return (nanoseconds < 0 ? "-" : "") + std::to_string(magnitude / 1000) + '.' +
         std::string(3 - decimals.size(), '0') + decimals;
}

// Writes the events, which lie row by row: the process is this one, its "threads" are the rows.
inline void write_chrome_trace(std::ostream& out, const std::vector<FunctionEvent>& events,
                               std::uint64_t dropped) {
  const std::string process = "\"pid\":" + std::to_string(::getpid());
  out << "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"dropped_events\":\"" << dropped
      << "\"},\n\"traceEvents\":[\n{\"ph\":\"M\"," << process
      << ",\"name\":\"process_name\",\"args\":{\"name\":"
      << json_text(::program_invocation_short_name) << "}}";
  std::size_t row = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const FunctionEvent& event = events[i];
    const bool first = i == 0 || event.row != events[i - 1].row;
    if (first) ++row;
    const std::string where = process + ",\"tid\":" + std::to_string(row);
    if (first) {
      out << ",\n{\"ph\":\"M\"," << where
          << ",\"name\":\"thread_name\",\"args\":{\"name\":" << json_text(event.row)
          << "}},\n{\"ph\":\"M\"," << where
          << ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" << row << "}}";
    }
    out << ",\n{\"ph\":\"X\"," << where << ",\"ts\":" << microseconds(event.begin_ns)
        << ",\"dur\":" << microseconds(event.end_ns - event.begin_ns)
        << ",\"name\":" << json_text(event.name);
    if (event.bytes > 0) out << ",\"args\":{\"bytes\":" << event.bytes << '}';
    out << '}';
  }
  out << "\n]}\n";
}

}  // namespace lockstep::profile::detail
