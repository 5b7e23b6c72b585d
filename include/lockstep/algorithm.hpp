// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

// The algorithms of <algorithm> that are used most, on whole ranges. Each is a plain loop: those of
// libstdc++ compile the predicate seven times wherever they are called.
namespace lockstep::detail {

template <class Range, class Predicate>
auto find_if(Range&& range, const Predicate& holds) {
  auto at = range.begin();
  while (at != range.end() && !holds(*at)) ++at;
  return at;
}

template <class Range, class Value>
auto find(Range&& range, const Value& value) {
  return detail::find_if(range, [&](const auto& element) { return element == value; });
}

template <class Range, class Predicate>
bool any_of(const Range& range, const Predicate& holds) {
  return detail::find_if(range, holds) != range.end();
}

template <class Range, class Predicate>
bool all_of(const Range& range, const Predicate& holds) {
  return !detail::any_of(range, [&](const auto& element) { return !holds(element); });
}

}  // namespace lockstep::detail
