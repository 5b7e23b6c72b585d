// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/threads/worker_mailbox.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace lockstep::detail {

struct Worker;

// What the caller and the workers of one `run_team` call, or of one Crew, share. It belongs to the
// team's first worker and so is never destroyed: the last worker may still be about to wake the
// caller after the caller has seen the end and left.
struct Team {
  // Set in `pending` while the caller is parked there: the worker that ends last must wake it.
  static constexpr std::uint32_t kCallerParked = 1;
  // What each share that has not ended counts in `pending`.
  static constexpr std::uint32_t kShare = 2;

  // Share i, from 1 on, runs on workers[i - 1]. The caller writes this before it posts share 1;
  // workers read it before they end their shares.
  std::vector<Worker*> workers;

  // The value of `pending` when all shares have ended. It is even, and only the caller uses it.
  std::uint32_t settled = 0;

  // Exceeds `settled`, modulo 2^32, by kShare for each share that a worker has yet to end: of all
  // shares of a team or, in a Crew, of those posted so far.
  //
  // A caller that knows the number of shares lowers `settled` rather than raise this word, whose
  // cache line is with the worker that wrote it last. A Crew's shares are counted before their
  // posts (relaxed: the post carries it). Each worker subtracts its share (release) as its last
  // access to the team except for the wake-up, and the caller reads it (acquire). All changes are
  // read-modify-writes, so one release sequence: a caller that reads `settled` sees everything that
  // the shares wrote.
  alignas(64) std::atomic<std::uint32_t> pending{0};

  // The core of the worker that last woke the caller, written before it does. A hint: another
  // team's caller may read it by then.
  std::atomic<int> core_of_waker{-1};

  // Room for what the shares read. The first worker prefetches the first 128 bytes even before it
  // has read the message. Only the caller uses it while no shares run.
  static constexpr std::size_t kRoom = 512;
  alignas(128) std::byte room[kRoom];
};

// One share: the message to a worker.
struct Share {
  // of_team is an order, whose worker posts two more; helpers is an offer to a Crew's helper.
  enum class Kind : std::uint8_t { of_team, helpers };

  Team* team = nullptr;
  FunctionRef<void(std::size_t index)> body = {};
  std::size_t index = 0;
  std::size_t team_size = 0;
  bool spin = false;  // threads that wait in this team may spin
  Kind kind = Kind::of_team;
  std::uint32_t settled = 0;  // the team's

  std::exception_ptr run() const noexcept {
    return thrown_by([this] { body(index); });
  }
};

// One thread of the pool. A call moves one cache line to the worker (the mailbox's, which a
// spinning worker only reads) and one back (`pending`).
//
// While the worker is free, the pool's mutex guards the plain members. While it is leased, they
// belong to the poster until it posts, to the worker until it decrements `pending`, then to the
// caller.
struct alignas(128) Worker {
  WorkerMailbox<Share> mailbox;
  std::exception_ptr error;  // what its share threw, or null; free for a Crew's use
  Team own_team;             // used when this worker is the first of a team
};

// What the pool has done since the process began, for tests and benchmarks. The workers parked
// right now are the parks minus the wake-ups.
struct TeamStats {
  std::uint64_t threads_created = 0;
  // Shares that workers were leased for, even if the caller then ran them itself.
  std::uint64_t shares_posted = 0;
  std::uint64_t parks = 0;     // times that a worker stopped spinning and went to sleep
  std::uint64_t wake_ups = 0;  // times that a parked worker was woken to run a share
  std::size_t running = 0;     // threads inside a team now; beyond `cores` none may spin
  std::size_t cores = 0;       // the cores that the first caller could use
};

// True on a worker, and on a thread inside `run_team`: a team started there adds only its workers
// to the number of running threads.
inline constinit thread_local bool inside_team = false;

// All worker threads of the process. A team that needs more than are free creates them. They are
// never joined or destroyed, so nothing hangs or dangles when the process ends. A worker has the
// CPU affinity of the thread that created it, without a CoreBinding.
class WorkerPool {
 public:
  static WorkerPool& instance();

  TeamStats stats();

 private:
  friend class Crew;
  friend class TeamLease;
  friend WorkerPool& never_destroyed<WorkerPool>();

  // Leading a team of more workers than this allocates the first time.
  static constexpr std::size_t kUsualWorkers = 16;

  WorkerPool() = default;

  // Takes workers for a team of this size and returns its share 0, in which the caller sets what to
  // run.
  Share lease(std::size_t size);

  // Takes the workers back in an order that gives each the same share in the next team of this
  // size, with its caches warm.
  void give_back(Team& team) noexcept;

  // Called with the mutex held. If it throws, the free workers are still there.
  void create_worker(std::size_t team_size);

  // The number of running threads that a team with this many workers adds if this thread starts it.
  static std::size_t added_threads(std::size_t workers) { return workers + (inside_team ? 0 : 1); }

  void post(const Share& from, std::size_t index, Post kind) noexcept;

  // Returns once all shares of the team have ended.
  static void join(const Share& own) noexcept;

  // A worker's main loop.
  [[noreturn]] void serve(Worker& self) noexcept;

  std::mutex mutex_;
  std::vector<Worker*> free_;          // guarded by mutex_; a stack with its top at the back
  std::uint64_t threads_created_ = 0;  // guarded by mutex_
  std::uint64_t shares_posted_ = 0;    // guarded by mutex_
  std::size_t running_ = 0;            // guarded by mutex_: threads that run shares
  const std::size_t cores_ = usable_cores();

  // Counters, written by any thread only when it parks or wakes another. They order nothing.
  alignas(64) std::atomic<std::uint64_t> parks_{0};
  std::atomic<std::uint64_t> wake_ups_{0};
};

// The workers of one team, from construction to destruction.
//
// Make the lease before writing what the shares read: these writes then travel to the other cores
// with the post, and the pool's lock does not wait for them.
//
// **Threads and exceptions.** Belongs to one thread. The constructor throws as run_team does.
class TeamLease : NonCopyable {
 public:
  // `size` is at least 2.
  explicit TeamLease(std::size_t size)
      : pool_((check_not_forked(), WorkerPool::instance())), own_(pool_.lease(size)) {}
  // A forked child has no workers to give back.
  ~TeamLease();

  // Memory for what the shares read; the first 128 bytes reach them soonest.
  void* room() const { return own_.team->room; }
  static constexpr std::size_t kRoom = Team::kRoom;
  static constexpr std::size_t kRoomAlignment = 128;

  // Runs share(i) for each i below the size, returns when all have ended, and hands each error to
  // `on_error(index, exception_ptr)` on the calling thread, in order. Called once.
  void run(FunctionRef<void(std::size_t index)> share,
           FunctionRef<void(std::size_t index, std::exception_ptr error)> on_error);

 private:
  WorkerPool& pool_;
  Share own_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/threads/impl/worker_pool.ipp>
#endif
