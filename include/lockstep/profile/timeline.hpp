// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/profile/function_event.hpp>
#include <lockstep/profile/recording/row.hpp>

#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lockstep::profile {

namespace detail {

// Orders rows: the main thread, other threads by name and number, host devices, GPUs; each device's
// compute stream before its copy stream.
struct RowKey {
  int group;
  std::string stem;
  long number;
  int kind;
  std::string label;

  friend auto operator<=>(const RowKey&, const RowKey&) = default;

  static RowKey of_thread(const std::string& label);
  static RowKey of_device(const Row& row);
};

// The ranges of all threads, put into rows in which no two cross: one lies within the other or
// behind it. Where several threads share a row and their ranges overlap, the row gets further ones
// beside it, "cpu:0 compute (2)"; ranges of one thread do not cross.
class Timeline {
 public:
  // The ranges of a thread come in the order in which they ended.
  void add(RowKey row, std::size_t thread, FunctionEvent event);

  // All ranges, row by row, each row in the order in which its ranges began.
  std::vector<FunctionEvent> arrange() &&;

 private:
  struct Part {
    std::size_t thread;
    FunctionEvent event;
  };
  // One of the rows that lie beside each other.
  struct Lane {
    std::vector<const Part*> parts;
    std::vector<const Part*> open;  // each within the one before
  };

  static void arrange_row(const std::string& label, std::vector<Part>& parts,
                          std::vector<FunctionEvent>& events);

  static Lane& lane_for(const Part& part, std::vector<Lane>& lanes);

  std::map<RowKey, std::vector<Part>> rows_;
};

}  // namespace detail

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/impl/timeline.ipp>
#endif
