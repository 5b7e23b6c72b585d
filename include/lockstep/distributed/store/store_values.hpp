// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

namespace lockstep::distributed::detail {

// The keys and values of a store. One thread at a time.
class StoreValues {
 public:
  void set(const std::string& key, std::string value);

  // Null if the key has no value.
  const std::string* find(const std::string& key) const;
  bool has_all(std::span<const std::string> keys) const;

  // What the key's number would become. A ValueError if it has another value or the sum does not
  // fit.
  std::int64_t sum(const std::string& key, std::int64_t amount) const;
  std::int64_t add(const std::string& key, std::int64_t amount);

  bool erase(const std::string& key);
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/store_values.ipp>
#endif
