// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/timeline.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

// What tests ask of a timeline.
namespace lockstep::testing {

inline std::vector<std::string> rows_of(const std::vector<profile::FunctionEvent>& events) {
  std::vector<std::string> rows;
  for (const auto& event : events) {
    if (rows.empty() || rows.back() != event.row) rows.push_back(event.row);
  }
  return rows;
}

// The names of the ranges in one row, in the order in which they began.
inline std::vector<std::string> names_in(const std::vector<profile::FunctionEvent>& events,
                                         const std::string& row) {
  std::vector<std::string> names;
  for (const auto& event : events) {
    if (event.row == row) names.push_back(event.name);
  }
  return names;
}

// Whoever is free runs backward: what two threads do on a device at once lies in two rows, that are
// one here.
inline void merge_rows(std::vector<profile::FunctionEvent>& events) {
  for (profile::FunctionEvent& event : events)
    event.row = event.row.substr(0, event.row.find(" ("));
}

// Passes if, in each row, each range lies within an earlier one that is open, or behind it.
inline ::testing::AssertionResult nothing_crosses(
    const std::vector<profile::FunctionEvent>& events) {
  std::vector<const profile::FunctionEvent*> open;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    if (i > 0 && event.row != events[i - 1].row) open.clear();
    if (event.end_ns < event.begin_ns) {
      return ::testing::AssertionFailure() << event.name << " ends before it begins";
    }
    while (!open.empty() && open.back()->end_ns <= event.begin_ns) open.pop_back();
    if (!open.empty() && event.end_ns > open.back()->end_ns) {
      return ::testing::AssertionFailure()
             << event.name << " crosses " << open.back()->name << " in " << event.row;
    }
    open.push_back(&event);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep::testing
