// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace lockstep::detail::nested {

// The name of a child that has none: what an optional or a variant holds.
struct Unnamed {};

// A walk's place in a structure or module, as a list of steps on the stack. Nothing is allocated
// until somebody asks for a text.
class Path {
 public:
  explicit Path(std::string_view root) : name_(root) {}
  Path(const Path& parent, std::string_view member) : parent_(&parent), name_(member) {}
  Path(const Path& parent, std::size_t index) : parent_(&parent), index_(index) {}
  Path(const Path& parent, Unnamed /*child*/) : Path(parent) {}

  // The path as messages name it: args[1].mask
  //
  // Avoids std::ostream, which is slow: each call's plan makes a path's text.
  std::string text() const { return joined(true); }
  friend std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.text();
  }

  // The path as a module's tensors are named: layers.1.weight
  std::string name() const { return joined(false); }

 private:
  // The steps from the root to this one, with indices in brackets or like names.
  std::string joined(bool brackets) const {
    std::string steps = parent_ ? parent_->joined(brackets) : std::string();
    const bool is_index = name_.data() == nullptr;
    if (is_index && brackets) {
      steps.append(1, '[').append(std::to_string(index_)).append(1, ']');
    } else {
      if (!steps.empty()) steps += '.';
      is_index ? steps.append(std::to_string(index_)) : steps.append(name_);
    }
    return steps;
  }

  const Path* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

}  // namespace lockstep::detail::nested
