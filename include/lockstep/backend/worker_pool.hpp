// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {

struct Worker;

// What the caller and the workers of one `run_team` call share. It lives in the team's first worker
// and therefore for ever: the last worker may still be about to notify the caller when the caller,
// having seen the end, has already left `run_team`.
struct Team {
  // Set in `pending` while the caller is parked on it: whoever ends last must then notify.
  static constexpr std::uint32_t kCallerParked = 0x8000'0000U;

  // Share i, from 1 on, is run by workers[i - 1]. Written by the caller before it posts share 1,
  // read by workers before they end their shares.
  std::vector<Worker*> workers;

  // How many workers have not ended their share. Set by the caller before anything is posted
  // (relaxed: the posts carry it), decremented by each worker (release) as its last access to the
  // team but the notification, read by the caller (acquire). Decrements form one release sequence,
  // so the caller that reads 0 sees all that the shares wrote.
  alignas(64) std::atomic<std::uint32_t> pending{0};
};

// One share, as a worker is told of it.
struct Share {
  using Invoke = void (*)(void* context, std::size_t index);

  Team* team = nullptr;
  Invoke invoke = nullptr;
  void* context = nullptr;
  std::size_t index = 0;
  std::size_t team_size = 0;
  bool spin = false;  // whether those who wait in this team may spin

  std::exception_ptr run() const noexcept {
    try {
      invoke(context, index);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }
};

// One thread of the pool. What moves between two cores in a call is one line to the worker (the
// letter box, which a spinning worker only reads) and one back (`pending`); the rest stays put.
//
// While the worker is free, the pool's mutex guards the plain members; while it is leased they
// belong to the team: to the poster until it posts, to the worker until it decrements `pending`,
// then to the caller, who gives it back.
struct alignas(64) Worker {
  static constexpr std::uint32_t kParked = 1;
  static constexpr std::uint32_t kOnePost = 2;

  // The letter box. `signal` is the number of posts so far times kOnePost, plus kParked while the
  // worker sleeps. A poster exchanges in the next number (release: it carries `share`) and notifies
  // if it took out kParked. The worker (acquire) sees a number that it has not handled, or adds
  // kParked, which fails if something was posted meanwhile.
  std::atomic<std::uint32_t> signal{0};
  std::uint32_t posts = 0;  // the number in `signal`, for the posters
  Share share;

  alignas(64) std::exception_ptr error;  // what the share threw; written only if it did
  Team own_team;                         // used when this worker is the first of a team
};

// What the pool has done since the process began, for tests and benchmarks. A worker is parked
// right now for each park without a wake-up.
struct TeamStats {
  std::uint64_t threads_created = 0;
  std::uint64_t shares_posted = 0;  // shares given to workers; the callers' own are not counted
  std::uint64_t parks = 0;          // times that a worker stopped spinning and went to sleep
  std::uint64_t wake_ups = 0;       // times that a parked worker was woken to run a share
  std::size_t running = 0;          // threads inside a team now; nobody may spin if they exceed
  std::size_t cores = 0;            // the cores that the first caller might use
};

// True on a worker, and on a thread that is inside `run_team`: a team that it starts adds only the
// workers to the number of running threads.
inline constinit thread_local bool inside_team = false;

// All worker threads of the process. They are created when a team needs more than are free, and are
// never joined or destroyed, so that nothing hangs or dangles when the process ends. A worker has
// the CPU affinity of the thread whose call created it.
class WorkerPool {
 public:
  static WorkerPool& instance() {
    static WorkerPool& pool = *new WorkerPool;
    return pool;
  }

  // Runs `invoke(context, i)` for each i below `size` (at least 2), returns when all have ended,
  // and hands each error to `on_error(index, exception_ptr)`, in the order of the shares.
  template <class OnError>
  void run(std::size_t size, Share::Invoke invoke, void* context, OnError on_error) {
    check_not_forked();
    Share own = lease(size);
    own.invoke = invoke;
    own.context = context;
    Team& team = *own.team;
    post(own, 1);
    const bool was_inside = std::exchange(inside_team, true);
    std::exception_ptr own_error = own.run();
    inside_team = was_inside;
    // A child forked inside share 0 gets here too, and nobody would ever end the other shares.
    check_not_forked();
    join(team.pending, own.spin);
    if (own_error) on_error(0, std::move(own_error));
    for (Worker* worker : team.workers) {
      if (worker->error) on_error(worker->share.index, std::exchange(worker->error, nullptr));
    }
    give_back(team);
  }

  TeamStats stats() {
    const std::lock_guard lock(mutex_);
    return {threads_created_,
            shares_posted_,
            parks_.load(std::memory_order_relaxed),
            wake_ups_.load(std::memory_order_relaxed),
            running_,
            cores_};
  }

 private:
  // A worker that leads a team with more workers than this allocates, the first time.
  static constexpr std::size_t kUsualWorkers = 16;

  WorkerPool() = default;

  // Takes workers for a team of this size and returns its share 0, yet without what to run.
  Share lease(std::size_t size) {
    const std::size_t count = size - 1;
    const std::lock_guard lock(mutex_);
    while (free_.size() < count) create_worker(size);
    const auto first = free_.rbegin();
    Team& team = (*first)->own_team;
    team.workers.assign(first, first + static_cast<std::ptrdiff_t>(count));
    free_.resize(free_.size() - count);
    team.pending.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
    running_ += added_threads(count);
    shares_posted_ += count;
    return {.team = &team, .team_size = size, .spin = running_ <= cores_};
  }

  // Takes the workers back, in such an order that the next team of this size has each of them run
  // the same share again, with its caches warm.
  void give_back(Team& team) noexcept {
    const std::lock_guard lock(mutex_);
    running_ -= added_threads(team.workers.size());
    // Never allocates: `create_worker` has reserved a place for each worker there is.
    free_.insert(free_.end(), team.workers.rbegin(), team.workers.rend());
  }

  // Called with the mutex held. Whatever it throws, the workers that exist are in their places.
  void create_worker(std::size_t team_size) {
    free_.reserve(threads_created_ + 1);
    auto worker = std::make_unique<Worker>();
    worker->own_team.workers.reserve(kUsualWorkers);
    try {
      std::thread([this, &self = *worker] { serve(self); }).detach();
    } catch (const std::system_error& error) {
      throw std::system_error(
          error.code(), str("run_team: ", team_size, " shares need ", team_size - 1,
                            " free worker threads, there are ", free_.size(), " (of ",
                            threads_created_, " in the process) and no more could be started"));
    }
    // At the bottom of the stack: the warm ones stay at the top.
    free_.insert(free_.begin(), worker.release());
    ++threads_created_;
  }

  // The threads that a team with so many workers, called from here, adds to those running.
  static std::size_t added_threads(std::size_t workers) { return workers + (inside_team ? 0 : 1); }

  // Gives share `index` to its worker, and with it the duty to post shares 2·index and 2·index + 1.
  void post(const Share& from, std::size_t index) noexcept {
    Worker& worker = *from.team->workers[index - 1];
    worker.share = from;
    worker.share.index = index;
    worker.posts += Worker::kOnePost;
    const auto before = worker.signal.exchange(worker.posts, std::memory_order_release);
    if ((before & Worker::kParked) != 0) {
      wake_ups_.fetch_add(1, std::memory_order_relaxed);
      worker.signal.notify_one();
    }
  }

  static void join(std::atomic<std::uint32_t>& pending, bool spin) noexcept {
    const auto ended = [&pending] { return pending.load(std::memory_order_acquire) == 0; };
    if (spin ? spin_until(ended) : ended()) return;
    auto value = pending.fetch_or(Team::kCallerParked, std::memory_order_acquire);
    if (value == 0) return;
    value |= Team::kCallerParked;
    while (value != Team::kCallerParked) {
      pending.wait(value, std::memory_order_acquire);
      value = pending.load(std::memory_order_acquire);
    }
  }

  // The life of a worker.
  [[noreturn]] void serve(Worker& self) noexcept {
    inside_team = true;
    std::uint32_t handled = 0;
    for (bool spin = false;;) {
      wait_for_post(self.signal, handled, spin);
      handled += Worker::kOnePost;
      const Share share = self.share;
      for (std::size_t next = 2 * share.index; next <= 2 * share.index + 1; ++next) {
        if (next < share.team_size) post(share, next);
      }
      if (std::exception_ptr error = share.run()) self.error = std::move(error);
      auto& pending = share.team->pending;
      if (pending.fetch_sub(1, std::memory_order_release) == (Team::kCallerParked | 1)) {
        pending.notify_one();
      }
      spin = share.spin;
    }
  }

  // Returns when `signal` holds another number of posts than `handled`.
  void wait_for_post(std::atomic<std::uint32_t>& signal, std::uint32_t handled,
                     bool spin) noexcept {
    const auto posted = [&signal, handled] {
      return (signal.load(std::memory_order_acquire) & ~Worker::kParked) != handled;
    };
    if (spin && spin_until(posted)) return;
    const std::uint32_t parked = handled | Worker::kParked;
    if (!signal.compare_exchange_strong(handled, parked, std::memory_order_acquire)) return;
    parks_.fetch_add(1, std::memory_order_relaxed);
    while (!posted()) signal.wait(parked, std::memory_order_acquire);
  }

  std::mutex mutex_;
  std::vector<Worker*> free_;          // guarded by mutex_; a stack, its top at the back
  std::uint64_t threads_created_ = 0;  // guarded by mutex_
  std::uint64_t shares_posted_ = 0;    // guarded by mutex_
  std::size_t running_ = 0;            // guarded by mutex_: how many threads run shares
  const std::size_t cores_ = usable_cores();

  // Counters, written by any thread, only when it parks or wakes another. They order nothing.
  alignas(64) std::atomic<std::uint64_t> parks_{0};
  std::atomic<std::uint64_t> wake_ups_{0};
};

}  // namespace lockstep::detail
