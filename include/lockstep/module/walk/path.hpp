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

// Where in a structure or module a walk is, as a list of steps on the stack. Nothing is allocated
// until somebody asks for a text.
class Path {
 public:
  explicit Path(std::string_view root) : name_(root) {}
  Path(const Path& parent, std::string_view member) : parent_(&parent), name_(member) {}
  Path(const Path& parent, std::size_t index) : parent_(&parent), index_(index) {}
  Path(const Path& parent, Unnamed /*child*/) : Path(parent) {}

  // args[1].mask
  //
  // Made without a std::ostream, which is slow: a plan keeps the text of a path for each call's
  // arguments.
  std::string text() const {
    std::string steps;
    append_text(steps);
    return steps;
  }
  friend std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.text();
  }

  // The same as a module's tensors are named: layers.1.weight
  std::string name() const {
    std::string steps;
    append_name(steps);
    return steps;
  }

 private:
  void append_text(std::string& steps) const {
    if (!parent_) {
      steps += name_;
      return;
    }
    parent_->append_text(steps);
    if (name_.data()) {
      steps.append(1, '.').append(name_);
    } else {
      steps.append(1, '[').append(std::to_string(index_)).append(1, ']');
    }
  }
  void append_name(std::string& steps) const {
    if (parent_) parent_->append_name(steps);
    if (!steps.empty()) steps += '.';
    if (name_.data()) {
      steps += name_;
    } else {
      steps += std::to_string(index_);
    }
  }

  const Path* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

}  // namespace lockstep::detail::nested
