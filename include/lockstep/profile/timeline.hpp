// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/function_event.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::profile::detail {

// Orders rows: the main thread, other threads by name and number, host devices, GPUs; of a device,
// the compute stream before the copy stream.
struct RowKey {
  int group;
  std::string stem;
  long number;
  int kind;
  std::string label;

  friend auto operator<=>(const RowKey&, const RowKey&) = default;

  static RowKey of_thread(const std::string& label) {
    // Of more than nine digits, only the last nine count.
    const std::size_t digits = std::max(label.find_last_not_of("0123456789") + 1,
                                        label.size() - std::min<std::size_t>(label.size(), 9));
    const long number = digits < label.size() ? std::stol(label.substr(digits)) : -1;
    return {label == "main" ? 0 : 1, label.substr(0, digits), number, 0, label};
  }
  static RowKey of_device(const Row& row) {
    return {row.device().is_cuda() ? 3 : 2, "", row.index, row.kind == Row::Kind::compute ? 0 : 1,
            row.str()};
  }
};

// Arranges the ranges of all threads in rows in which no two cross: they are nested or disjoint. If
// several threads share a row and their ranges cross, more rows are put next to it, "cpu:0 compute
// (2)". Ranges of one thread never cross.
class Timeline {
 public:
  // A thread adds its ranges in the order in which they ended.
  void add(RowKey row, std::size_t thread, FunctionEvent event) {
    rows_[std::move(row)].push_back({thread, std::move(event)});
  }

  // All ranges, row by row, each row in the order in which ranges began.
  std::vector<FunctionEvent> arrange() && {
    std::vector<FunctionEvent> events;
    for (auto& [key, parts] : rows_) arrange_row(key.label, parts, events);
    return events;
  }

 private:
  struct Part {
    std::size_t thread;
    FunctionEvent event;
  };
  // One of several rows next to each other.
  struct Lane {
    std::vector<const Part*> parts;
    std::vector<const Part*> open;  // each within the one before
  };

  static void arrange_row(const std::string& label, std::vector<Part>& parts,
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

  static Lane& lane_for(const Part& part, std::vector<Lane>& lanes) {
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

  std::map<RowKey, std::vector<Part>> rows_;
};

}  // namespace lockstep::profile::detail
