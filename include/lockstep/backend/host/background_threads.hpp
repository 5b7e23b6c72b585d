// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/shared_work.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/non_copyable.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A stream with queued operations, as a background thread sees it.
class Servable {
 public:
  // Runs what is queued unless another thread is doing so.
  virtual void serve() noexcept = 0;

 protected:
  virtual ~Servable() = default;

 private:
  friend class BackgroundThreads;
  Servable* next_ready_ = nullptr;  // guarded by the mutex of the threads
};

// The background threads, for tests and benchmarks. A thread is awake if it is looking for work, or
// will be without first waiting for another thread.
struct BackgroundStats {
  std::size_t threads = 0;
  std::size_t awake = 0;
  std::size_t asleep = 0;
  std::size_t wanted = 0;  // once so many are awake, no other is woken
};

// The background threads. They serve the queued streams of all host devices and, between streams,
// help with shared work.
//
// No thread belongs to a stream. A stream with work wakes another thread only while fewer are awake
// than there are cores besides a caller's. A thread that waits for something does not count as
// awake, so each stream that can go on gets a thread. Any thread that waits for a stream serves it
// if no other does, or helps with shared work.
//
// Threads: any thread may call any member. `mutex_` guards the plain members and the list of
// streams that starts in `front_`; it is never held while work runs. The threads are detached and
// this object is never destroyed.
class BackgroundThreads {
 public:
  static BackgroundThreads& instance() { return never_destroyed<BackgroundThreads>(); }

  // Makes sure that there is a thread. An Error if none can be started.
  void require() {
    if (started_.load(std::memory_order_acquire)) return;
    stay_loaded();
    const std::lock_guard lock(mutex_);
    if (thread_count_ == 0) start();
    started_.store(true, std::memory_order_release);
  }

  // Makes a thread serve `stream` soon. The caller has called `require`, and does not offer a
  // stream again until it is served. If no thread can be started, one of the others comes after its
  // wait.
  void offer(Servable& stream) noexcept {
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

  // Runs every piece, on this thread and on idle ones. Pieces see what the caller did before, and
  // the caller then sees what they did.
  void share(const Pieces& pieces) {
    check_not_forked();
    bool wake = false;
    SharedWork* const work = cores_ > 1 && pieces.count > 1 ? opened(pieces, wake) : nullptr;
    if (!work) {
      for (std::size_t i = 0; i < pieces.count; ++i) pieces.run(i);
      return;
    }
    front_.work.store(work, std::memory_order_release);
    announce(wake);
    work->run_from(my_end());
    work->close();
    const std::lock_guard lock(mutex_);
    std::erase(open_, work);
    slots_.push_back(work);
  }

  BackgroundStats stats() {
    const std::lock_guard lock(mutex_);
    return {thread_count_, awake_, asleep_, wanted_};
  }

  // Changes with every offer and every shared work: a thread that sees no change need not look for
  // work again.
  std::uint32_t announcements() const {
    return front_.announcements.load(std::memory_order_acquire);
  }

  // Helps with shared work until none is left or `go_on()` is false. Returns whether there was any.
  template <class GoOn>
  bool help_while(GoOn go_on) {
    SharedWork* work = join_latest(kNoLimit);
    if (!work) {
      const std::lock_guard lock(mutex_);
      work = join_one(kNoLimit);
    }
    if (!work) return false;
    work->help(my_end(), go_on);
    return true;
  }

  // While it lives, the calling thread may wait for others: if it is one of these threads, another
  // one takes its place.
  class BlockingScope : NonCopyable {
   public:
    BlockingScope() : counted_(std::exchange(is_background, false)) {
      if (counted_) instance().begin_blocking();
    }
    ~BlockingScope() {
      if (counted_) instance().end_blocking();
      is_background = counted_;
    }

   private:
    const bool counted_;
  };

 private:
  // The most helpers for one work. A few cores keep the memory busy; more are needed elsewhere.
  static constexpr std::uint32_t kMostHelpers = 7;
  // For a thread that would otherwise only wait.
  static constexpr std::uint32_t kNoLimit = UINT32_MAX;

  // True on one of these threads, but not within a BlockingScope.
  static inline constinit thread_local bool is_background = false;

  // The end from which the calling thread takes pieces: these threads from the back, all others
  // from the front.
  static SharedWork::End my_end() {
    return is_background ? SharedWork::End::back : SharedWork::End::front;
  }

  friend BackgroundThreads& never_destroyed<BackgroundThreads>();

  BackgroundThreads() = default;

  // The next four are called with the mutex held, the others without it unless they say so.

  // True if a sleeping thread must be woken; it counts as awake from now on. If none sleeps, starts
  // one, which needs no waking.
  bool need_another() noexcept {
    if (awake_ >= wanted_) return false;
    if (asleep_ == 0) {
      // If no thread can be started, one of the others comes to the stream later.
      (void)thrown_by([this] { start(); });
      return false;
    }
    --asleep_;
    ++awake_;
    ++called_;
    return true;
  }

  void start() {
    start_detached("no thread for the streams of host devices", [this] { run(); });
    ++thread_count_;
    ++awake_;
  }

  // Opens a work that others can find. Null if memory runs out; its owner can do without.
  SharedWork* opened(const Pieces& pieces, bool& wake) {
    stay_loaded();
    const std::lock_guard lock(mutex_);
    if (slots_.empty() && thrown_by([this] { add_slot(); })) return nullptr;
    SharedWork* const work = slots_.back();
    slots_.pop_back();
    work->open(pieces);
    open_.push_back(work);
    wake = need_another();
    return work;
  }

  // Makes memory for one more open work, including its places in the lists.
  void add_slot() {
    auto work = std::make_unique<SharedWork>();
    open_.reserve(open_.size() + 1);
    slots_.reserve(open_.size() + 1);
    slots_.push_back(work.release());
  }

  // Joins the first work that takes another helper.
  SharedWork* join_one(std::uint32_t most) {
    const auto joined =
        find_if(open_, [most](SharedWork* work) { return work->has_pieces() && work->join(most); });
    return joined != open_.end() ? *joined : nullptr;
  }

  // Called with or without the mutex.
  static bool wants_helpers(const SharedWork* work) {
    return work->has_pieces() && work->helpers() < kMostHelpers;
  }

  // The first of the offered streams; only a hint unless the mutex is held.
  Servable* first_ready() const { return front_.ready.load(std::memory_order_relaxed); }

  // Joins the work shared last, usually the only one, if it takes another helper.
  SharedWork* join_latest(std::uint32_t most) {
    SharedWork* const work = front_.work.load(std::memory_order_acquire);
    return work != nullptr && work->has_pieces() && work->join(most) ? work : nullptr;
  }

  // Called without the mutex, so that a woken thread need not wait for it.
  void announce(bool wake) {
    front_.announcements.fetch_add(1, std::memory_order_release);
    if (wake) wake_one();
  }

  void wake_one() {
    core_of_waker_.store(current_core(), std::memory_order_relaxed);
    woken_.notify_one();
  }

  void begin_blocking() {
    bool wake;
    {
      const std::lock_guard lock(mutex_);
      --awake_;
      wake = first_ready() != nullptr && need_another();
    }
    if (wake) wake_one();
  }

  void end_blocking() {
    const std::lock_guard lock(mutex_);
    ++awake_;
  }

  // A thread's main loop.
  [[noreturn]] void run() {
    is_background = true;
    SharedCore shared_core;
    for (;;) {
      const std::uint32_t seen = announcements();
      if (serve_one()) continue;
      help(seen);
      const auto called = [&] { return announcements() != seen; };
      if (shared_core.yield_until(called) || spin_until(called)) continue;
      if (sleep()) shared_core.woken_from(core_of_waker_.load(std::memory_order_relaxed));
    }
  }

  bool serve_one() {
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

  // Helps until all pieces are taken or `announcements` changes from `seen`, since a stream with
  // work comes first. Wakes another thread if the work takes one more helper.
  void help(std::uint32_t seen) {
    SharedWork* work = join_latest(kMostHelpers);
    bool wake = false;
    if (!work || wanted_ > 1) {
      const std::lock_guard lock(mutex_);
      if (!work) work = join_one(kMostHelpers);
      wake = work && wants_helpers(work) && need_another();
    }
    if (wake) wake_one();
    if (work) work->help(my_end(), [&] { return announcements() == seen; });
  }

  // Returns false at once if there is something to do; otherwise true once another thread has
  // counted this one as awake again.
  bool sleep() {
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

  const std::size_t cores_ = usable_cores();
  const std::size_t wanted_ = std::max<std::size_t>(1, cores_ - 1);

  std::atomic<bool> started_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  Servable* last_ready_ = nullptr;  // the end of the list that starts at front_.ready
  std::vector<SharedWork*> open_;   // in the order opened
  std::vector<SharedWork*> slots_;  // not in use
  std::size_t thread_count_ = 0;
  // A thread is awake if it will look at the lists again without waiting for anyone. One in `sleep`
  // is asleep until it is called, and awake from then on.
  std::size_t awake_ = 0;
  std::size_t asleep_ = 0;
  std::size_t called_ = 0;
  // The core of the thread that last woke one of these; a hint.
  std::atomic<int> core_of_waker_{-1};

  // What threads that look for work read: one cache line. A thread that reads a new number of
  // announcements also sees the announced stream or work.
  struct alignas(64) Front {
    std::atomic<std::uint32_t> announcements{0};
    // The first offered stream that no thread has taken. Changed with the mutex held; read without
    // it as a hint.
    std::atomic<Servable*> ready{nullptr};
    // The work shared last; it may be closed by now, or open for another owner. Stored with
    // release, since a thread may see a new work before its announcement.
    std::atomic<SharedWork*> work{nullptr};
  };
  Front front_;
};

}  // namespace lockstep::detail
