// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.hpp>
#include <cudasim/fiber.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// What the simulated libraries (cuBLASLt, cuDNN) have in common.
namespace cudasim {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// A misuse: reported, and answered as the real library would.
template <class Status, class... Parts>
Status misuse(Status status, const Parts&... parts) {
  report(text(parts...));
  return status;
}

// The handles or descriptors of one kind that were made and not destroyed.
template <class T>
class Alive {
 public:
  T* make(T value) {
    auto made = std::make_unique<T>(std::move(value));
    T* const handle = made.get();
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    alive_.emplace(handle, std::move(made));
    return handle;
  }
  // Null for what is not alive.
  T* find(const T* handle) {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(handle);
    return found == alive_.end() ? nullptr : found->second.get();
  }
  bool end(const T* handle) {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    return alive_.erase(handle) == 1;
  }
  std::size_t count() {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    return alive_.size();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const T*, std::unique_ptr<T>> alive_;
};

// Lives until the process ends, as the libraries' own state does.
template <class T>
Alive<T>& alive() {
  static Alive<T>& all = *new Alive<T>;
  return all;
}

// Declares a use of `bytes`, together with the one before it where they touch.
inline void add_use(std::vector<MemoryUse>& uses, const void* data, std::size_t bytes, bool write) {
  if (bytes == 0) return;
  if (!uses.empty()) {
    MemoryUse& last = uses.back();
    if (last.write == write && static_cast<const char*>(last.data) + last.bytes == data) {
      last.bytes += bytes;
      return;
    }
  }
  uses.push_back({data, bytes, write});
}

// Rounded to the nearest value with `bits` bits of mantissa, ties to even.
inline float rounded_to(float value, int bits) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if ((word & 0x7f800000U) == 0x7f800000U) return value;  // infinite, or not a number
  const int drop = 23 - bits;
  word += (1U << (drop - 1)) - 1 + (word >> drop & 1U);
  word &= ~((1U << drop) - 1);
  std::memcpy(&value, &word, sizeof word);
  return value;
}

}  // namespace cudasim
