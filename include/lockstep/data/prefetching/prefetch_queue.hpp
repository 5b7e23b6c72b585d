// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

namespace lockstep::data::detail {

// A thread that makes items in advance, in order, and waits while `depth` of them are not taken.
//
// The thread runs `make(queue)`, which is to call, for each item, wait_for_room, make it, and put
// it; its return ends the row of items. An exception of it is thrown where the item that it was
// making would have been taken, and ends the row, too.
//
// Threads: the queue owns the thread and joins it in its destructor, so that making one item may
// keep the destructor waiting, nothing else. One thread takes. `mutex_` guards all data, and what
// the thread did before it put an item comes before what the taker does with it.
template <class Item>
class PrefetchQueue : lockstep::detail::NonCopyable {
 public:
  template <class Make>
  PrefetchQueue(std::size_t depth, Make make) : depth_(depth) {
    try {
      thread_ =
          lockstep::detail::start_thread([this, make = std::move(make)]() mutable { run(make); });
    } catch (const std::system_error& error) {
      throw Error(lockstep::detail::str("no thread to prefetch in: ", error.what()));
    }
  }
  ~PrefetchQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_one();
    thread_.join();
  }

  // The next item; nothing after the last one.
  std::optional<Item> take() {
    std::optional<Item> item;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [this] { return ended_ || !items_.empty(); });
      if (items_.empty()) {
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
        return item;
      }
      item.emplace(std::move(items_.front()));
      items_.pop_front();
    }
    room_.notify_one();
    return item;
  }

  // Called by `make` before each item. False when nobody will take that.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return stopped_ || items_.size() < depth_; });
    return !stopped_;
  }

  void put(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    filled_.notify_one();
  }

 private:
  template <class Make>
  void run(Make& make) noexcept {
    (void)::pthread_setname_np(::pthread_self(), "ls-prefetch");
    std::exception_ptr error;
    try {
      make(*this);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      ended_ = true;
    }
    filled_.notify_one();
  }

  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable room_;    // what the thread waits for
  std::condition_variable filled_;  // what the taker waits for
  std::deque<Item> items_;
  std::exception_ptr error_;
  bool ended_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::data::detail
