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

// What is asked of a store; hello and cancel only of a TCPStore's server, and join and leave are
// noted only in a FileStore's file.
enum class StoreRequest { hello, set, get, wait, check, add, erase, count, cancel, join, leave };

// A call of a Store's member.
struct StoreCall {
  StoreRequest request;
  std::vector<std::string> keys = {};  // one, but any number of wait and check, and none of count
  std::string value = {};              // of set
  std::int64_t amount = 0;             // of add

  // True if the answer comes when all keys have values.
  bool waits() const { return request == StoreRequest::get || request == StoreRequest::wait; }
  bool changes() const {
    return request == StoreRequest::set || request == StoreRequest::add ||
           request == StoreRequest::erase;
  }
};

// A call as a frame: its request, and the rest of it, which `read_call` reads. Throws BadFrame for
// what is no call.
std::string frame_of(const StoreCall& call);
StoreCall read_call(StoreRequest request, FrameReader& reader);

struct StoreAnswer {
  std::string value = {};   // of get
  std::int64_t number = 0;  // of add and count; 0 or 1 of check and erase
};

// The keys and values of a store. One thread at a time.
class StoreValues {
 public:
  bool has_all(std::span<const std::string> keys) const;

  // Does what the call asks for. If it waits for keys, they are there. A ValueError for `add` to
  // what is no number, or if the sum does not fit.
  StoreAnswer answer(const StoreCall& call);

  // What the key's number becomes if `amount` is added. Throws as `answer`.
  std::int64_t sum(const std::string& key, std::int64_t amount) const;

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/store_values.ipp>
#endif
