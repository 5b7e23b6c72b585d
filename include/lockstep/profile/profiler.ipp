// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/profile/chrome_trace.hpp>
#include <lockstep/profile/device_timer.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/profile/recorder.hpp>
#include <lockstep/profile/row.hpp>
#include <lockstep/profile/timeline.hpp>

#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::profile {

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
      add(timeline, thread, logs[thread]->label(), event);
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
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (file) detail::write_chrome_trace(file, events_, dropped_);
  file.close();
  check<DataError>(!file.fail(), path.string(), ": cannot write the timeline",
                   errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
}

LOCKSTEP_INLINE void Profiler::add(detail::Timeline& timeline, std::size_t thread,
                                   const std::string& label,
                                   const detail::RecordedEvent& event) const {
  const auto drawn = [&](std::int64_t begin, std::int64_t end) {
    return FunctionEvent{event.name, "", begin - start_, end - start_, event.bytes};
  };
  const bool on_host = event.row.kind != Row::Kind::thread && !event.row.is_gpu();
  timeline.add(on_host ? detail::RowKey::of_device(event.row) : detail::RowKey::of_thread(label),
               thread, drawn(event.begin, event.end));
  if (event.begin_mark == nullptr || event.end_mark == nullptr) return detail::discard(event);
  auto* const timer = detail::device_timer.load(std::memory_order_acquire);
  const std::optional<std::int64_t> begin = timer->resolve(event.begin_mark);
  const std::optional<std::int64_t> end = timer->resolve(event.end_mark);
  if (!begin || !end) return;
  timeline.add(detail::RowKey::of_device(event.row), thread, drawn(*begin, std::max(*begin, *end)));
}

}  // namespace lockstep::profile
