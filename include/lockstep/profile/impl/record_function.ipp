// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/recording.hpp>
#include <lockstep/profile/recording/row.hpp>
#include <lockstep/profile/recording/thread_log.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace lockstep::profile {

LOCKSTEP_INLINE RecordFunction::RecordFunction(Literal name, Row row,
                                               RangeDetails details) noexcept {
  const std::uint64_t state = detail::recording.load(std::memory_order_relaxed);
  if (state != 0) [[unlikely]]
    begin(state, name.text(), row, details);
}

LOCKSTEP_INLINE RecordFunction::~RecordFunction() {
  if (state_ != 0) [[unlikely]]
    end();
}

[[gnu::noinline]] LOCKSTEP_INLINE const char* RecordFunction::kept(
    std::uint64_t state, const std::string& name) noexcept {
  detail::ThreadLog* const log = state > 1 ? detail::Recorder::instance().log(state >> 1) : nullptr;
  const char* const copy = log != nullptr ? log->keep(name) : nullptr;
  return copy != nullptr ? copy : "";
}

[[gnu::noinline]] LOCKSTEP_INLINE void RecordFunction::begin(std::uint64_t state, const char* name,
                                                             const Row& row,
                                                             const RangeDetails& details) noexcept {
  state_ = state;
  event_ = {.name = name,
            .begin = 0,
            .end = 0,
            .bytes = details.bytes,
            .begin_mark = nullptr,
            .end_mark = nullptr,
            .row = row};
  stream_ = details.stream;
  listener_ = (state & 1) != 0 ? detail::range_listener.load(std::memory_order_acquire) : nullptr;
  if (listener_ != nullptr) listener_->push(name);
  if (state < 2) return;
  event_.begin = detail::now();
  event_.begin_mark = mark();
}

[[gnu::noinline]] LOCKSTEP_INLINE void RecordFunction::end() noexcept {
  if (listener_ != nullptr) listener_->pop();
  if (state_ < 2) return;
  const std::uint64_t session = state_ >> 1;
  const bool recorded = detail::recording.load(std::memory_order_relaxed) >> 1 == session;
  if (recorded && event_.begin_mark != nullptr) event_.end_mark = mark();
  event_.end = detail::now();
  detail::ThreadLog* const log = recorded ? detail::Recorder::instance().log(session) : nullptr;
  if (log != nullptr && log->append(event_)) return;
  detail::discard(event_);
}

LOCKSTEP_INLINE detail::DeviceMark* RecordFunction::mark() const noexcept {
  if (!event_.row.is_gpu()) return nullptr;
  const detail::MakeMark make = detail::make_mark.load(std::memory_order_acquire);
  return make != nullptr ? make(event_.row, stream_) : nullptr;
}

}  // namespace lockstep::profile
