// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/shared_work.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/stay_loaded.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>

namespace lockstep::detail {

LOCKSTEP_INLINE BackgroundThreads& BackgroundThreads::instance() {
  static BackgroundThreads& threads = *new BackgroundThreads;
  return threads;
}

LOCKSTEP_INLINE void BackgroundThreads::require() {
  if (started_.load(std::memory_order_acquire)) return;
  stay_loaded();
  const std::lock_guard lock(mutex_);
  if (thread_count_ == 0) start();
  started_.store(true, std::memory_order_release);
}

LOCKSTEP_INLINE void BackgroundThreads::offer(Servable& stream) noexcept {
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    stream.next_ready_ = nullptr;
    if (first_ready() != nullptr) {
      last_ready_->next_ready_ = &stream;
    } else {
      front_.ready.store(&stream, std::memory_order_relaxed);
    }
    last_ready_ = &stream;
    wake = need_another();
  }
  announce(wake);
}

LOCKSTEP_INLINE void BackgroundThreads::share(const Pieces& pieces) {
  check_not_forked();
  if (cores_ == 1 || pieces.count < 2) {
    for (std::size_t i = 0; i < pieces.count; ++i) pieces.run(pieces.context, i);
    return;
  }
  stay_loaded();
  SharedWork* work;
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    work = take_slot();
    work->open(pieces);
    open_.push_back(work);
    wake = need_another();
  }
  front_.work.store(work, std::memory_order_release);
  announce(wake);
  work->run_from(my_end());
  work->close();
  const std::lock_guard lock(mutex_);
  std::erase(open_, work);
  slots_.push_back(work);
}

LOCKSTEP_INLINE BackgroundStats BackgroundThreads::stats() {
  const std::lock_guard lock(mutex_);
  return {thread_count_, awake_, asleep_, wanted_};
}

LOCKSTEP_INLINE BackgroundThreads::BlockingScope::~BlockingScope() {
  if (counted_) instance().end_blocking();
  is_background = counted_;
}

LOCKSTEP_INLINE bool BackgroundThreads::need_another() noexcept {
  if (awake_ >= wanted_) return false;
  if (asleep_ == 0) {
    try {
      start();
    } catch (...) {
      // No thread could be started: one of the others comes to the stream later.
    }
    return false;
  }
  --asleep_;
  ++awake_;
  ++called_;
  return true;
}

LOCKSTEP_INLINE void BackgroundThreads::start() {
  try {
    start_detached([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(str("no thread for the streams of host devices: ", error.what()));
  }
  ++thread_count_;
  ++awake_;
}

LOCKSTEP_INLINE SharedWork* BackgroundThreads::take_slot() {
  if (slots_.empty()) {
    auto work = std::make_unique<SharedWork>();
    open_.reserve(slot_count_ + 1);
    slots_.reserve(slot_count_ + 1);
    ++slot_count_;
    return work.release();
  }
  SharedWork* const work = slots_.back();
  slots_.pop_back();
  return work;
}

LOCKSTEP_INLINE SharedWork* BackgroundThreads::join_one(std::uint32_t most) {
  const auto joined =
      find_if(open_, [most](SharedWork* work) { return work->has_pieces() && work->join(most); });
  return joined != open_.end() ? *joined : nullptr;
}

LOCKSTEP_INLINE SharedWork* BackgroundThreads::join_latest(std::uint32_t most) {
  SharedWork* const work = front_.work.load(std::memory_order_acquire);
  return work != nullptr && work->has_pieces() && work->join(most) ? work : nullptr;
}

LOCKSTEP_INLINE void BackgroundThreads::announce(bool wake) {
  front_.announcements.fetch_add(1, std::memory_order_release);
  if (wake) wake_one();
}

LOCKSTEP_INLINE void BackgroundThreads::wake_one() {
  core_of_waker_.store(current_core(), std::memory_order_relaxed);
  woken_.notify_one();
}

LOCKSTEP_INLINE void BackgroundThreads::leave() {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    --awake_;
    if (first_ready() != nullptr) wake = need_another();
  }
  if (wake) wake_one();
}

LOCKSTEP_INLINE void BackgroundThreads::end_blocking() {
  const std::lock_guard lock(mutex_);
  ++awake_;
}

LOCKSTEP_INLINE void BackgroundThreads::run() {
  is_background = true;
  SharedCore shared_core;
  for (;;) {
    const std::uint32_t seen = announcements();
    if (serve_one()) continue;
    // A thread that has helped with the latest work does not look at the list of works, whose lock
    // the work's owner needs now; `sleep` looks at it if nothing new comes before.
    if (!help_latest(seen) && help_one(seen)) continue;
    const auto called = [&] { return announcements() != seen; };
    if (shared_core.yield_until(called) || spin_until(called)) continue;
    if (sleep()) shared_core.woken_from(core_of_waker_.load(std::memory_order_relaxed));
  }
}

LOCKSTEP_INLINE bool BackgroundThreads::serve_one() {
  if (first_ready() == nullptr) return false;
  Servable* stream;
  {
    const std::lock_guard lock(mutex_);
    stream = first_ready();
    if (!stream) return false;
    front_.ready.store(stream->next_ready_, std::memory_order_relaxed);
  }
  stream->serve();
  return true;
}

LOCKSTEP_INLINE bool BackgroundThreads::help_latest(std::uint32_t seen) {
  SharedWork* const work = join_latest(kMostHelpers);
  if (!work) return false;
  if (wanted_ > 1) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      if (wants_helpers(work)) wake = need_another();
    }
    if (wake) wake_one();
  }
  work->help(my_end(), [&] { return announcements() == seen; });
  return true;
}

LOCKSTEP_INLINE bool BackgroundThreads::help_one(std::uint32_t seen) {
  SharedWork* work;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    work = join_one(kMostHelpers);
    if (work && wants_helpers(work)) wake = need_another();
  }
  if (wake) wake_one();
  if (!work) return false;
  work->help(my_end(), [&] { return announcements() == seen; });
  return true;
}

LOCKSTEP_INLINE bool BackgroundThreads::sleep() {
  std::unique_lock lock(mutex_);
  if (first_ready() != nullptr || any_of(open_, &wants_helpers)) {
    return false;
  }
  --awake_;
  ++asleep_;
  woken_.wait(lock, [this] { return called_ > 0; });
  --called_;
  return true;
}

}  // namespace lockstep::detail
