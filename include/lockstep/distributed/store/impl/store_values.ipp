// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>
#include <lockstep/number_in_text.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE std::string frame_of(const StoreCall& call) {
  FrameWriter frame(call.request);
  frame.number(static_cast<std::uint32_t>(call.keys.size()));
  for (const std::string& key : call.keys) frame.text(key);
  if (call.request == StoreRequest::set) frame.text(call.value);
  if (call.request == StoreRequest::add) frame.number(call.amount);
  return frame.take();
}

LOCKSTEP_INLINE StoreCall read_call(StoreRequest request, FrameReader& reader) {
  check<BadFrame>(request <= StoreRequest::leave, "an unknown request");
  StoreCall call{request};
  for (std::size_t left = reader.count(); left > 0; --left) call.keys.push_back(reader.text());
  if (request == StoreRequest::set) call.value = reader.text();
  if (request == StoreRequest::add) call.amount = reader.number<std::int64_t>();
  reader.end();
  const bool any = request == StoreRequest::wait || request == StoreRequest::check;
  const std::size_t keys = request < StoreRequest::count ? 1 : 0;
  check<BadFrame>(any || call.keys.size() == keys, "a request of ", call.keys.size(), " keys");
  return call;
}

LOCKSTEP_INLINE bool StoreValues::has_all(std::span<const std::string> keys) const {
  return lockstep::detail::all_of(keys,
                                  [this](const std::string& key) { return values_.contains(key); });
}

LOCKSTEP_INLINE StoreAnswer StoreValues::answer(const StoreCall& call) {
  switch (call.request) {
    case StoreRequest::set:
      values_[call.keys[0]] = call.value;
      return {};
    case StoreRequest::get:
      return {.value = values_.at(call.keys[0])};
    case StoreRequest::check:
      return {.number = has_all(call.keys)};
    case StoreRequest::add: {
      const std::int64_t total = sum(call.keys[0], call.amount);
      values_[call.keys[0]] = std::to_string(total);
      return {.number = total};
    }
    case StoreRequest::erase:
      return {.number = values_.erase(call.keys[0]) > 0};
    case StoreRequest::count:
      return {.number = static_cast<std::int64_t>(values_.size())};
    default:
      return {};
  }
}

LOCKSTEP_INLINE std::int64_t StoreValues::sum(const std::string& key, std::int64_t amount) const {
  const auto found = values_.find(key);
  const std::string_view value = found == values_.end() ? std::string_view("0") : found->second;
  const auto number = lockstep::detail::number_in<std::int64_t>(value);
  check<ValueError>(number.has_value(), "Store.add: the value of key '", key,
                    "' is not a number: '", value.substr(0, 40), '\'');
  std::int64_t total = 0;
  check<ValueError>(!__builtin_add_overflow(*number, amount, &total), "Store.add: ", *number,
                    " and ", amount, " (key '", key, "') add up to more than 64 bits hold");
  return total;
}

}  // namespace lockstep::distributed::detail
