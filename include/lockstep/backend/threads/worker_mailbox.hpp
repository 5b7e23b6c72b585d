// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lockstep::detail {

// How long a worker naps before it looks for low-priority offers (the kernel adds some 50 µs of
// slack), and how many naps without a new offer it takes before it parks.
inline constexpr std::chrono::microseconds kNap{50};
inline constexpr int kNaps = 40;

enum class Post { order, offer, low_priority_offer };

// How a worker thread learns of work: a message, and a word that tells it to look.
//
// A post is either an order, which the worker follows, or an offer, which the poster may withdraw
// until the worker accepts it. A low-priority offer does not end a nap: the worker finds it after
// the nap, and accepts it if it still stands after another nap. So nobody pays for waking the
// worker, yet an offer that stands is accepted within two naps. (Callers that need no help soon
// withdraw most of them.)
//
// Threads: the posters order their posts among themselves, and after the worker's last access to an
// accepted message. Any thread may call `withdraw`, and `make_urgent` while nobody posts; only the
// worker calls the rest.
template <class Message>
class WorkerMailbox {
 public:
  explicit WorkerMailbox(std::chrono::microseconds nap = kNap) : nap_(nap) {}

  // Returns true if the worker was parked and had to be woken.
  bool post(const Message& message, Post kind) {
    message_ = message;
    posts_ += kOnePost;
    std::uint32_t before = word_.load(std::memory_order_relaxed);
    if (kind == Post::low_priority_offer) {
      const std::uint32_t value = posts_ | kOffered | kLowPriority;
      while (!word_.compare_exchange_weak(before, value | (before & kNapping),
                                          std::memory_order_release, std::memory_order_relaxed)) {
      }
    } else {
      before =
          word_.exchange(posts_ | (kind == Post::offer ? kOffered : 0), std::memory_order_release);
      if ((before & kNapping) != 0) end_nap();
    }
    if ((before & kParked) == 0) return false;
    core_of_poster_.store(current_core(), std::memory_order_relaxed);
    unpark(word_, 1);
    return true;
  }

  // Takes an offer back; false if there is none, or the worker has accepted it.
  bool withdraw() {
    std::uint32_t value = word_.load(std::memory_order_relaxed);
    while ((value & kOffered) != 0) {
      if (word_.compare_exchange_weak(value, (value & ~kOffered) | kWithdrawn,
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  // Makes the worker look at a low-priority offer at once and accept it.
  void make_urgent() {
    if ((word_.fetch_or(kUrgent, std::memory_order_relaxed) & kNapping) == 0) return;
    if ((word_.fetch_and(~kNapping, std::memory_order_relaxed) & kNapping) != 0) end_nap();
  }

  // Returns when something has been posted since the last `accept`. With `spin`, it first yields
  // (if it shares the poster's core and the last offer was not low-priority) and spins. After a
  // low-priority offer it then naps. Finally it parks, and counts that in `parks`.
  //
  // `enclosed`, unless null, is 128 bytes that posters write before a post. The worker prefetches
  // them while it spins, so that they arrive with the message.
  void wait(bool spin, std::atomic<std::uint64_t>& parks, const std::byte* enclosed = nullptr) {
    const auto posted = [this] { return number(word_.load(std::memory_order_acquire)) != seen_; };
    const auto look = [&] {
      if (enclosed != nullptr) {
        __builtin_prefetch(enclosed);
        __builtin_prefetch(enclosed + 64);
      }
      return posted();
    };
    if (spin && naps_left_ == 0 && shared_core_.yield_until(look)) return;
    if (spin && spin_until(look)) return;
    while (naps_left_ > 0) {
      const std::uint32_t value = word_.load(std::memory_order_acquire);
      if (number(value) == seen_) {
        --naps_left_;
      } else if (!is_recent(value)) {
        return;
      } else {
        looked_at_ = number(value);
        seen_ = looked_at_ - kOnePost;  // not older: the numbers might come round to it
        naps_left_ = kNaps;
      }
      nap(number(value));
    }
    std::uint32_t value = word_.load(std::memory_order_acquire);
    do {
      if (number(value) != seen_) return;
    } while (!word_.compare_exchange_weak(value, value | kParked, std::memory_order_acquire));
    parks.fetch_add(1, std::memory_order_relaxed);
    // Reads the value each time, since `make_urgent` changes it without a post.
    for (value |= kParked; number(value) == seen_; value = word_.load(std::memory_order_acquire)) {
      park(word_, value);
    }
    shared_core_.woken_from(core_of_poster_.load(std::memory_order_relaxed));
  }

  // The last message, or null if it was withdrawn.
  const Message* accept() {
    std::uint32_t value = word_.load(std::memory_order_acquire);
    while (true) {
      seen_ = number(value);
      naps_left_ = (value & kLowPriority) != 0 ? kNaps : 0;
      if ((value & kWithdrawn) != 0) return nullptr;
      if ((value & kOffered) == 0) return &message_;
      if (word_.compare_exchange_weak(value, value & ~kOffered, std::memory_order_acquire)) {
        return &message_;
      }
    }
  }

 private:
  // The word is the number of posts so far times kOnePost, plus these flags:
  static constexpr std::uint32_t kParked = 1;        // the worker sleeps until it is woken
  static constexpr std::uint32_t kNapping = 2;       // the worker naps
  static constexpr std::uint32_t kOffered = 4;       // the last post is an offer not yet accepted
  static constexpr std::uint32_t kWithdrawn = 8;     // the last post was withdrawn
  static constexpr std::uint32_t kLowPriority = 16;  // the last post was a low-priority offer
  static constexpr std::uint32_t kUrgent = 32;       // the worker must accept it without a nap
  static constexpr std::uint32_t kOnePost = 64;

  static std::uint32_t number(std::uint32_t value) { return value & ~(kOnePost - 1); }

  // True for a low-priority offer that may wait for another nap.
  bool is_recent(std::uint32_t value) const {
    return (value & (kOffered | kLowPriority | kUrgent)) == (kOffered | kLowPriority) &&
           number(value) != looked_at_;
  }

  // Sleeps for a nap, or until `post` or `make_urgent` clears kNapping. Does not sleep if there is
  // a post newer than `known`, or an urgent offer.
  void nap(std::uint32_t known) {
    std::unique_lock lock(nap_mutex_);
    std::uint32_t value = word_.load(std::memory_order_relaxed);
    do {
      if (number(value) != known || (value & (kOffered | kUrgent)) == (kOffered | kUrgent)) {
        return;
      }
    } while (!word_.compare_exchange_weak(value, value | kNapping, std::memory_order_relaxed));
    nap_over_.wait_for(lock, nap_,
                       [this] { return (word_.load(std::memory_order_relaxed) & kNapping) == 0; });
    word_.fetch_and(~kNapping, std::memory_order_relaxed);
  }

  void end_nap() {
    // The worker holds the mutex from before it sets kNapping until it sleeps.
    { const std::lock_guard lock(nap_mutex_); }
    nap_over_.notify_one();
  }

  // What a post sends to the worker's core: one cache line if the message is short.
  alignas(64) std::atomic<std::uint32_t> word_{0};
  std::uint32_t posts_ = 0;  // the number in `word_`, for the posters
  Message message_ = {};

  // The core of the poster that last woke the worker. A hint: the worker may read it too early.
  std::atomic<int> core_of_poster_{-1};

  // The worker's own: the number of the last post it has dealt with, the number of a low-priority
  // offer left for another nap, and the naps left before it parks.
  alignas(64) std::uint32_t seen_ = 0;
  std::uint32_t looked_at_ = 0;
  int naps_left_ = 0;
  SharedCore shared_core_;

  const std::chrono::microseconds nap_;
  std::mutex nap_mutex_;
  std::condition_variable nap_over_;
};

}  // namespace lockstep::detail
