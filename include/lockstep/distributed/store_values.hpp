// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

namespace lockstep::distributed::detail {

// What every store keeps, wherever it keeps it. One thread at a time.
class StoreValues {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }

  // Null if the key has no value.
  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  bool has_all(std::span<const std::string> keys) const {
    return std::all_of(keys.begin(), keys.end(),
                       [this](const std::string& key) { return values_.contains(key); });
  }

  // What the key's number would become. A ValueError if it has another value or the sum does not
  // fit.
  std::int64_t sum(const std::string& key, std::int64_t amount) const {
    const std::string* const value = find(key);
    std::int64_t number = 0;
    if (value) {
      const char* const end = value->data() + value->size();
      const auto [rest, error] = std::from_chars(value->data(), end, number);
      check<ValueError>(error == std::errc() && rest == end, "Store.add: the value of key '", key,
                        "' is not a number: '", value->substr(0, 40), '\'');
    }
    std::int64_t total = 0;
    check<ValueError>(!__builtin_add_overflow(number, amount, &total), "Store.add: ", number,
                      " and ", amount, " (key '", key, "') add up to more than 64 bits hold");
    return total;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) {
    const std::int64_t total = sum(key, amount);
    set(key, std::to_string(total));
    return total;
  }

  bool erase(const std::string& key) { return values_.erase(key) > 0; }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace lockstep::distributed::detail
