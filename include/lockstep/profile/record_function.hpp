// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/name_thread.hpp>
#include <lockstep/profile/recording/recording.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>

namespace lockstep::profile {

// The name of a range as a string literal, which lives as long as the program.
class Literal {
 public:
  consteval Literal(const char* text) : text_(text) {}
  constexpr const char* text() const { return text_; }

 private:
  const char* text_;
};

struct RangeDetails {
  std::uint64_t bytes = 0;  // bytes copied, for instance; not shown if 0
  // The stream on which a GPU's range is timed; null for the thread's current one.
  lockstep::detail::StreamState* stream = nullptr;
};

// Marks a named range of time, from here to the end of the scope, in the timeline of the recording
// Profiler, if any.
//
// It is drawn in the row of the calling thread, or of the given device. On a host device it shows
// the time that the thread spends in the scope; on a GPU, the time that the GPU spends on the
// scope's work, while the thread's row shows the time spent issuing that. A range that began before
// the Profiler, or ends after it, is left out.
//
// The name is a literal; a name made at run time must be a std::string, which is copied.
//
// **Torch counterpart.** torch.profiler.record_function, RECORD_FUNCTION.
// **Devices and streams.** With CUDA, NVTX ranges of the same name show in Nsight Systems. Timing a
// range on a GPU adds two events to its stream.
// **Threads and exceptions.** Begins and ends in one thread; throws nothing. If nothing records, it
// costs about a nanosecond and allocates nothing.
// **Example.** const ls::profile::RecordFunction range("augment");
class RecordFunction : lockstep::detail::NonCopyable {
 public:
  [[nodiscard]] explicit RecordFunction(Literal name, Row row = {},
                                        RangeDetails details = {}) noexcept;
  template <std::same_as<std::string> Text>
  [[nodiscard]] explicit RecordFunction(const Text& name, Row row = {},
                                        RangeDetails details = {}) noexcept {
    const std::uint64_t state = detail::recording.load(std::memory_order_relaxed);
    if (state != 0) [[unlikely]] {
      begin(state, name.c_str(), row, details);
      event_.name = kept(state, name);
    }
  }
  ~RecordFunction();

 private:
  // A copy of the name that lives as long as the log; an empty name if there is no room.
  [[gnu::cold]] static const char* kept(std::uint64_t state, const std::string& name) noexcept;

  [[gnu::cold]] void begin(std::uint64_t state, const char* name, const Row& row,
                           const RangeDetails& details) noexcept;

  [[gnu::cold]] void end() noexcept;

  detail::DeviceMark* mark() const noexcept;

  // `recording` when the range began. If it is 0, nothing below has a value.
  std::uint64_t state_ = 0;
  const detail::RangeListener* listener_;
  detail::RecordedEvent event_;
  lockstep::detail::StreamState* stream_;
};

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/impl/record_function.ipp>
#endif
