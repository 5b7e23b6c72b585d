// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/json_string.hpp>
#include <lockstep/profile/function_event.hpp>

#include <errno.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The Trace Event Format that chrome://tracing and Perfetto read.
namespace lockstep::profile::detail {

// Nanoseconds as microseconds with three decimals.
inline std::string microseconds(std::int64_t nanoseconds) {
  const auto magnitude = static_cast<std::uint64_t>(nanoseconds < 0 ? -nanoseconds : nanoseconds);
  const std::string decimals = std::to_string(magnitude % 1000);
  return std::string(nanoseconds < 0 ? "-" : "") + std::to_string(magnitude / 1000) + '.' +
         std::string(3 - decimals.size(), '0') + decimals;
}

// The text of a trace of these events, which come row by row; its "threads" are the rows. Avoids
// std::ostream, which might group digits.
inline std::string chrome_trace(const std::vector<FunctionEvent>& events, std::uint64_t dropped) {
  using lockstep::detail::json_string;
  const std::string process = "\"pid\":" + std::to_string(::getpid());
  std::string text = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"dropped_events\":\"" +
                     std::to_string(dropped) + "\"},\n\"traceEvents\":[\n{\"ph\":\"M\"," + process +
                     ",\"name\":\"process_name\",\"args\":{\"name\":" +
                     json_string(::program_invocation_short_name) + "}}";
  std::size_t row = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const FunctionEvent& event = events[i];
    const bool first = i == 0 || event.row != events[i - 1].row;
    if (first) ++row;
    const std::string where = process + ",\"tid\":" + std::to_string(row);
    if (first) {
      text += ",\n{\"ph\":\"M\"," + where +
              ",\"name\":\"thread_name\",\"args\":{\"name\":" + json_string(event.row) +
              "}},\n{\"ph\":\"M\"," + where +
              ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(row) +
              "}}";
    }
    text += ",\n{\"ph\":\"X\"," + where + ",\"ts\":" + microseconds(event.begin_ns) +
            ",\"dur\":" + microseconds(event.end_ns - event.begin_ns) +
            ",\"name\":" + json_string(event.name);
    if (event.bytes > 0) text += ",\"args\":{\"bytes\":" + std::to_string(event.bytes) + '}';
    text += '}';
  }
  text += "\n]}\n";
  return text;
}

}  // namespace lockstep::profile::detail
