// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/atomic_file.hpp>
#include <lockstep/profile/chrome_trace.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/recording.hpp>
#include <lockstep/profile/recording/row.hpp>
#include <lockstep/profile/recording/thread_log.hpp>
#include <lockstep/profile/timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::profile::detail {

inline void add_event(Timeline& timeline, std::int64_t start, std::size_t thread,
                      const std::string& label, const RecordedEvent& event) {
  const std::unique_ptr<DeviceMark> begin_mark(event.begin_mark);
  const std::unique_ptr<DeviceMark> end_mark(event.end_mark);
  const auto drawn = [&](std::int64_t begin, std::int64_t end) {
    return FunctionEvent{event.name, "", begin - start, end - start, event.bytes};
  };
  const bool on_host = event.row.kind != Row::Kind::thread && !event.row.is_gpu();
  timeline.add(on_host ? RowKey::of_device(event.row) : RowKey::of_thread(label), thread,
               drawn(event.begin, event.end));
  if (!begin_mark || !end_mark) return;
  const std::optional<std::int64_t> begin = begin_mark->time();
  const std::optional<std::int64_t> end = end_mark->time();
  if (!begin || !end) return;
  timeline.add(RowKey::of_device(event.row), thread, drawn(*begin, std::max(*begin, *end)));
}

}  // namespace lockstep::profile::detail

namespace lockstep::profile {

LOCKSTEP_INLINE Profiler::Profiler(const ProfilerOptions& options)
    : start_(detail::now()), session_(detail::Recorder::instance().start(options.max_events)) {}

LOCKSTEP_INLINE Profiler::~Profiler() {
  if (session_ == 0) return;
  for (const auto& log : detail::Recorder::instance().stop()) {
    log->drain([](const detail::RecordedEvent& event) { detail::discard(event); });
  }
}

LOCKSTEP_INLINE void Profiler::stop() {
  if (std::exchange(session_, 0) == 0) return;
  const std::vector<std::shared_ptr<detail::ThreadLog>> logs = detail::Recorder::instance().stop();
  detail::Timeline timeline;
  for (std::size_t thread = 0; thread < logs.size(); ++thread) {
    logs[thread]->drain([&](const detail::RecordedEvent& event) {
      detail::add_event(timeline, start_, thread, logs[thread]->label(), event);
    });
    dropped_ += logs[thread]->dropped();
  }
  events_ = std::move(timeline).arrange();
}

LOCKSTEP_INLINE const std::vector<FunctionEvent>& Profiler::events() {
  stop();
  return events_;
}

LOCKSTEP_INLINE std::uint64_t Profiler::dropped_events() {
  stop();
  return dropped_;
}

LOCKSTEP_INLINE void Profiler::export_chrome_trace(const std::filesystem::path& path) {
  stop();
  const std::string text = detail::chrome_trace(events_, dropped_);
  lockstep::detail::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace lockstep::profile
