// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/parallel/nested/leaves.hpp>

#include <string>

namespace lockstep::detail::nested {

LOCKSTEP_INLINE std::string Path::text() const {
  std::string steps;
  append_to(steps);
  return steps;
}

LOCKSTEP_INLINE void Path::append_to(std::string& steps) const {
  if (!parent_) {
    steps += name_;
    return;
  }
  parent_->append_to(steps);
  if (name_.data()) {
    steps.append(1, '.').append(name_);
  } else {
    steps.append(1, '[').append(std::to_string(index_)).append(1, ']');
  }
}

}  // namespace lockstep::detail::nested
