// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

// The most used algorithms of <algorithm>, for whole ranges. Each is a plain loop, since those of
// libstdc++ compile the predicate seven times at each call.
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
