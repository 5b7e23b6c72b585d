// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <utility>

// What `run` writes around lines of the headers, and has included in front of everything, so that
// one program can go without any one of them.
namespace mutations {

// True for the mutation that this process runs with: its number is in the environment.
inline bool deleted(int mutation) {
  static const int chosen = [] {
    const char* text = std::getenv("MUTATION");
    return text ? std::atoi(text) : 0;
  }();
  return mutation == chosen;
}

// A variable of which nothing but its constructor and destructor is used: none of a mutation's.
template <class T, int mutation>
class Deletable {
 public:
  template <class... Args>
  explicit Deletable(Args&&... args) {
    if (!deleted(mutation)) value_.emplace(std::forward<Args>(args)...);
  }
  Deletable(const Deletable&) = delete;
  Deletable& operator=(const Deletable&) = delete;

 private:
  std::optional<T> value_;
};

}  // namespace mutations
