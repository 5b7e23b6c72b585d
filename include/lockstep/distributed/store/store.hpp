// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep::distributed {

namespace detail {
class Deadline;
}  // namespace detail

// Thrown if a key is not set within the time limit or a store fails; names the store and the keys.
//
// **Torch counterpart.** torch.distributed.DistStoreError.
class StoreError : public Error {
 public:
  using Error::Error;
};

// Keys and values that all ranks share. Ranks use it to tell each other what they need to connect,
// such as an address; it is not made for transporting data. Values are any bytes; keys are up to 8
// KiB long, values up to 8 MiB.
//
// HashStore is for the threads of a process, FileStore for the processes of a machine, TCPStore for
// those of several; PrefixStore keeps users of one store apart.
//
// **Torch counterpart.** torch.distributed.Store.
// **Threads and exceptions.** Any thread may call any member, even while others wait. A StoreError
// for a call that does not succeed within the time limit, a lost connection and an unusable file. A
// ValueError for a key or value that is too long, for a negative time limit, and for `add` to a
// value that is not a number or would exceed 64 bits. In a child that is forked later, any call is
// an Error.
class Store : lockstep::detail::NonCopyable {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);
  static constexpr std::size_t kMaxKey = std::size_t{8} << 10;
  static constexpr std::size_t kMaxValue = std::size_t{8} << 20;

  explicit Store(std::chrono::milliseconds timeout = kDefaultTimeout);
  virtual ~Store() = default;

  // The time limit of calls without one of their own.
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(std::chrono::milliseconds timeout);

  // Sets the key's value, whether it had one or not.
  void set(const std::string& key, const std::string& value);

  // Returns the key's value; waits until it has one.
  std::string get(const std::string& key) { return get(key, timeout()); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout);

  // Adds to a number, kept as decimal text and 0 for a key without value, and returns the sum. If
  // ranks add 1, each gets another sum: this is how they count.
  std::int64_t add(const std::string& key, std::int64_t amount);

  // Waits until all keys have values.
  void wait(std::span<const std::string> keys) { wait(keys, timeout()); }
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);

  // True if all keys have values.
  bool check(std::span<const std::string> keys);

  // Removes the key and its value; true if it had one.
  bool delete_key(const std::string& key);

  // How many keys have values.
  std::int64_t num_keys();

  // What messages call the store: "TCPStore at node1:29500".
  virtual std::string name() const = 0;

 private:
  // Runs a call that has been checked, and returns or throws by the deadline; nothing if the keys
  // that it waits for have no values by then.
  virtual std::optional<detail::StoreAnswer> answer(const detail::StoreCall& call,
                                                    const detail::Deadline& deadline) = 0;

  detail::StoreAnswer check_and_answer(const detail::StoreCall& call,
                                       std::chrono::milliseconds timeout);
  static void check_key(const std::string& key);

  friend class PrefixStore;  // passes its calls on with their deadlines

  // Any thread reads it; it publishes nothing else, so relaxed order is enough.
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/store.ipp>
#endif
