// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void StoreValues::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
}

LOCKSTEP_INLINE bool StoreValues::erase(const std::string& key) { return values_.erase(key) > 0; }

LOCKSTEP_INLINE const std::string* StoreValues::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

LOCKSTEP_INLINE bool StoreValues::has_all(std::span<const std::string> keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return values_.contains(key); });
}

LOCKSTEP_INLINE std::int64_t StoreValues::sum(const std::string& key, std::int64_t amount) const {
  const std::string* const value = find(key);
  std::int64_t number = 0;
  if (value) {
    const char* const end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data(), end, number);
    check<ValueError>(error == std::errc() && rest == end, "Store.add: the value of key '", key,
                      "' is not a number: '", value->substr(0, 40), '\'');
  }
  std::int64_t total = 0;
  check<ValueError>(!__builtin_add_overflow(number, amount, &total), "Store.add: ", number, " and ",
                    amount, " (key '", key, "') add up to more than 64 bits hold");
  return total;
}

LOCKSTEP_INLINE std::int64_t StoreValues::add(const std::string& key, std::int64_t amount) {
  const std::int64_t total = sum(key, amount);
  set(key, std::to_string(total));
  return total;
}

}  // namespace lockstep::distributed::detail
