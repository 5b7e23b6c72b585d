// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/profile/timeline.hpp>

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
std::size_t utf8_sequence(std::string_view text);

// `text` as a JSON string, in quotes; a byte that is not UTF-8 becomes the replacement character.
std::string json_text(std::string_view text);

// Nanoseconds as microseconds with three decimals.
std::string microseconds(std::int64_t nanoseconds);

// Writes the events, which lie row by row: the process is this one, its "threads" are the rows.
void write_chrome_trace(std::ostream& out, const std::vector<FunctionEvent>& events,
                        std::uint64_t dropped);

}  // namespace lockstep::profile::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/impl/chrome_trace.ipp>
#endif
