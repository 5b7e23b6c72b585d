// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/recording/row.hpp>
#include <lockstep/profile/timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::profile::detail {

LOCKSTEP_INLINE RowKey RowKey::of_thread(const std::string& label) {
  std::size_t digits = label.size();
  while (digits > 0 && label.size() - digits < 9 && label[digits - 1] >= '0' &&
         label[digits - 1] <= '9') {
    --digits;
  }
  const long number = digits < label.size() ? std::stol(label.substr(digits)) : -1;
  return {label == "main" ? 0 : 1, label.substr(0, digits), number, 0, label};
}

LOCKSTEP_INLINE RowKey RowKey::of_device(const Row& row) {
  return {row.cuda ? 3 : 2, "", row.index, row.kind == Row::Kind::compute ? 0 : 1, row.str()};
}

LOCKSTEP_INLINE void Timeline::add(RowKey row, std::size_t thread, FunctionEvent event) {
  rows_[std::move(row)].push_back({thread, std::move(event)});
}

LOCKSTEP_INLINE std::vector<FunctionEvent> Timeline::arrange() && {
  std::vector<FunctionEvent> events;
  for (auto& [key, parts] : rows_) arrange_row(key.label, parts, events);
  return events;
}

LOCKSTEP_INLINE void Timeline::arrange_row(const std::string& label, std::vector<Part>& parts,
                                           std::vector<FunctionEvent>& events) {
  // Of two ranges with equal times, the one that was added later encloses the other.
  std::reverse(parts.begin(), parts.end());
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.event.begin_ns, -a.event.end_ns) <
           std::pair(b.event.begin_ns, -b.event.end_ns);
  });
  std::vector<Lane> lanes;
  for (const Part& part : parts) {
    Lane& lane = lane_for(part, lanes);
    lane.parts.push_back(&part);
    lane.open.push_back(&part);
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::string name = i == 0 ? label : label + " (" + std::to_string(i + 1) + ')';
    for (const Part* part : lanes[i].parts) events.emplace_back(part->event).row = name;
  }
}

LOCKSTEP_INLINE Timeline::Lane& Timeline::lane_for(const Part& part, std::vector<Lane>& lanes) {
  Lane* empty = nullptr;
  for (Lane& lane : lanes) {
    auto& open = lane.open;
    while (!open.empty() && open.back()->event.end_ns <= part.event.begin_ns) open.pop_back();
    if (open.empty()) {
      if (empty == nullptr) empty = &lane;
    } else if (open.back()->thread == part.thread &&
               part.event.end_ns <= open.back()->event.end_ns) {
      return lane;
    }
  }
  return empty != nullptr ? *empty : lanes.emplace_back();
}

}  // namespace lockstep::profile::detail
