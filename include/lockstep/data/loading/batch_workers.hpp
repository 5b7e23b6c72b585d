// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/name_thread.hpp>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::data::detail {

// Loads the batches of one pass in its own threads, ahead of the consumer, and returns them in
// order.
//
// The next free worker loads the next batch, but at most `bound` batches after the last one taken.
// After a batch that fails to load, or that is nothing, no further one is begun.
//
// Threads: one thread, the owner, calls `take` and the destructor. The workers, named ls-loader-0
// and so on, have the state (streams, autocast) of the thread that made them. They end when there
// is nothing left to load; the destructor waits for the batches that they are loading and joins
// them. `Shared::mutex` guards all that the threads share, and its release passes a batch from the
// worker to the owner.
template <class Batch>
class BatchWorkers : lockstep::detail::NonCopyable {
 public:
  // Called by all workers concurrently. Returning nothing ends the pass.
  using Load = std::function<std::optional<Batch>(std::size_t batch)>;

  // `workers` and `bound` are at least 1 and at most `batches`.
  BatchWorkers(Load load, std::size_t batches, std::size_t workers, std::size_t bound)
      : shared_(std::make_unique<Shared>(std::move(load), batches, bound)) {
    lockstep::detail::check_not_forked();  // marks the children of a later fork, too
    try {
      start(workers);
    } catch (...) {
      end();
      throw;
    }
  }
  ~BatchWorkers() {
    if (lockstep::detail::forked()) {
      // The workers exist in the parent only: there is nothing to join, and the mutex may be locked
      // for ever, so the child leaks the memory.
      (void)shared_.release();
    } else {
      end();
    }
  }

  // Waits for the next batch and returns it; nothing after the last one. Throws the exception of
  // loading it, once, which ends the pass.
  std::optional<Batch> take() {
    lockstep::detail::check_not_forked();
    std::unique_lock lock(shared_->mutex);
    Slot& slot = shared_->slot_of(shared_->taken);
    shared_->loaded.wait(lock, [&slot] { return slot.ready; });
    if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
    std::optional<Batch> batch = std::exchange(slot.batch, std::nullopt);
    if (!batch) return batch;
    slot.ready = false;
    ++shared_->taken;
    lock.unlock();
    shared_->room.notify_one();
    return batch;
  }

 private:
  // Passes a batch from worker to owner. Until it is ready it belongs to the worker that loads the
  // batch, then to the owner.
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
    bool ready = false;  // guarded by Shared::mutex
  };

  // Batch b uses slot b modulo their number. Two never share one, since no batch is begun before
  // the one that had its slot is taken.
  struct Shared {
    Shared(Load function, std::size_t batches, std::size_t bound)
        : load(std::move(function)), end(batches), slots(bound) {}

    Slot& slot_of(std::size_t batch) { return slots[batch % slots.size()]; }

    const Load load;
    std::mutex mutex;
    std::condition_variable room;    // tells the workers that they may load more, or must end
    std::condition_variable loaded;  // tells the owner that a batch is ready
    std::size_t begun = 0;           // guarded by mutex, like all below
    std::size_t taken = 0;
    std::size_t end;  // no batch from here on is begun
    std::vector<Slot> slots;
    std::vector<std::thread> threads;  // the owner's
  };

  void start(std::size_t workers) {
    const auto state = std::make_shared<const lockstep::detail::ThreadState>(
        lockstep::detail::ThreadState::capture());
    shared_->threads.reserve(workers);
    for (std::size_t i = 0; i < workers; ++i) {
      const std::string none = lockstep::detail::str("only ", i, " of ", workers,
                                                     " threads that load batches could be started");
      shared_->threads.push_back(
          lockstep::detail::start_thread(none, [&shared = *shared_, state, i] {
            profile::name_thread("ls-loader-" + std::to_string(i));
            work(shared, *state);
          }));
    }
  }

  static void work(Shared& shared, const lockstep::detail::ThreadState& state) noexcept {
    std::optional<lockstep::detail::ThreadState::Scope> scope;
    std::unique_lock lock(shared.mutex);
    while (true) {
      shared.room.wait(lock, [&shared] {
        return shared.begun >= shared.end || shared.begun - shared.taken < shared.slots.size();
      });
      if (shared.begun >= shared.end) return;
      const std::size_t batch = shared.begun++;
      lock.unlock();
      Slot& slot = shared.slot_of(batch);
      slot.error = lockstep::detail::thrown_by([&] {
        if (!scope) scope.emplace(state);  // here, so that its exception is the batch's
        std::optional<Batch> loaded = shared.load(batch);
        if (loaded) slot.batch.emplace(std::move(*loaded));
      });
      lock.lock();
      if (!slot.batch) shared.end = 0;
      slot.ready = true;
      shared.loaded.notify_one();
    }
  }

  void end() noexcept {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->end = 0;
    }
    shared_->room.notify_all();
    for (std::thread& thread : shared_->threads) thread.join();
  }

  std::unique_ptr<Shared> shared_;
};

}  // namespace lockstep::data::detail
