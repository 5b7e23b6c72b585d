// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <map>
#include <utility>

namespace lockstep::cuda {

// A map of at most `capacity` values, which drops those that were not used lately, so that a
// program whose shapes never repeat does not grow.
//
// It keeps two generations instead of an order of use: a value that is used moves to the recent
// one. When that holds half of the capacity, it becomes the old one, and the old one's values are
// dropped.
template <class Key, class Value>
class BoundedCache {
 public:
  explicit BoundedCache(std::size_t capacity) : half_(capacity / 2) {}

  // The value of `key`: what `make()` returns if it is not known. Valid until the next call.
  template <class Make>
  Value& find_or(const Key& key, const Make& make) {
    const auto found = recent_.find(key);
    if (found != recent_.end()) return found->second;
    auto node = old_.extract(key);
    if (node) {
      age();
      return recent_.insert(std::move(node)).position->second;
    }
    Value made = make();
    age();
    return recent_.emplace(key, std::move(made)).first->second;
  }

  std::size_t size() const { return recent_.size() + old_.size(); }

 private:
  void age() {
    if (recent_.size() < half_) return;
    old_ = std::exchange(recent_, {});
  }

  const std::size_t half_;
  std::map<Key, Value> recent_;
  std::map<Key, Value> old_;
};

}  // namespace lockstep::cuda
