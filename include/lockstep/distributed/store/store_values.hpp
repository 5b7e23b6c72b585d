// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::distributed::detail {

class FrameReader;

// What is asked of a store. Only a TCPStore's server gets hello and cancel; only a FileStore's file
// holds join and leave.
enum class StoreRequest { hello, set, get, wait, check, add, erase, count, cancel, join, leave };

// A call of a Store's member.
struct StoreCall {
  StoreRequest request;
  std::vector<std::string> keys = {};  // one; for wait and check any number, for count none
  std::string value = {};              // for set
  std::int64_t amount = 0;             // for add

  // True if the answer waits until all keys have values.
  bool waits() const { return request == StoreRequest::get || request == StoreRequest::wait; }
  bool changes() const {
    return request == StoreRequest::set || request == StoreRequest::add ||
           request == StoreRequest::erase;
  }
};

// A call as a frame. `read_call` reads what follows the request, and throws BadFrame for anything
// but a call.
std::string frame_of(const StoreCall& call);
StoreCall read_call(StoreRequest request, FrameReader& reader);

struct StoreAnswer {
  std::string value = {};   // for get
  std::int64_t number = 0;  // for add and count; 0 or 1 for check and erase
};

// The keys and values of a store. One thread at a time.
class StoreValues {
 public:
  bool has_all(std::span<const std::string> keys) const;

  // Runs the call. Keys that it waits for have values. A ValueError for `add` to what is not a
  // number, or if the sum does not fit.
  StoreAnswer answer(const StoreCall& call);

  // The key's number plus `amount`. Throws like `answer`.
  std::int64_t sum(const std::string& key, std::int64_t amount) const;

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/store_values.ipp>
#endif
