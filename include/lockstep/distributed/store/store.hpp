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

// Thrown if a key does not come within the time limit or a store cannot be used any more; names the
// store and the keys.
//
// **Torch counterpart.** torch.distributed.DistStoreError.
class StoreError : public Error {
 public:
  using Error::Error;
};

// Keys and values that all ranks share. Ranks leave there for each other what they need to connect,
// such as an address. It is no means of transport: keys are up to 8 KiB long, values up to 8 MiB.
// Values are any bytes.
//
// HashStore serves the threads of a process, FileStore the processes of a machine, TCPStore those
// of several; PrefixStore keeps users of one store apart.
//
// **Torch counterpart.** torch.distributed.Store.
// **Threads and exceptions.** Any thread may call any member, also while others wait. A call that
// cannot succeed within the time limit is a StoreError, and so are a connection that is lost and a
// file that cannot be used. A ValueError for a key or value that is too long, for a negative time
// limit, and for `add` to a value that is no number, or where the sum takes more than 64 bits. In a
// child that is forked later, any call is an Error.
class Store : lockstep::detail::NonCopyable {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);
  static constexpr std::size_t kMaxKey = std::size_t{8} << 10;
  static constexpr std::size_t kMaxValue = std::size_t{8} << 20;

  explicit Store(std::chrono::milliseconds timeout = kDefaultTimeout);
  virtual ~Store() = default;

  // The time limit of calls that are not given one.
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(std::chrono::milliseconds timeout);

  // Gives the key its value, whether it had one or not.
  void set(const std::string& key, const std::string& value);

  // The key's value; waits until it has one.
  std::string get(const std::string& key) { return get(key, timeout()); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout);

  // Adds to a number, which is kept as decimal text and is 0 for a key without value, and returns
  // the sum. No two ranks get the same one if they add 1: this is how they count.
  std::int64_t add(const std::string& key, std::int64_t amount);

  // Waits until all keys have values.
  void wait(std::span<const std::string> keys) { wait(keys, timeout()); }
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);

  // True if all keys have values.
  bool check(std::span<const std::string> keys);

  // Takes the key's value away; true if it had one.
  bool delete_key(const std::string& key);

  // How many keys have values.
  std::int64_t num_keys();

  // What messages call the store: "TCPStore at node1:29500".
  virtual std::string name() const = 0;

 private:
  // Does what the call asks for, and returns or throws by the deadline; nothing if the keys that it
  // waits for have not come by then. The call has been checked.
  virtual std::optional<detail::StoreAnswer> answer(const detail::StoreCall& call,
                                                    const detail::Deadline& deadline) = 0;

  detail::StoreAnswer check_and_answer(const detail::StoreCall& call,
                                       std::chrono::milliseconds timeout);
  static void check_key(const std::string& key);

  friend class PrefixStore;  // which hands its calls on with their deadlines

  // Any thread reads it. It publishes nothing else, so relaxed order is enough.
  std::atomic<std::chrono::milliseconds> timeout_{kDefaultTimeout};
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/store.ipp>
#endif
