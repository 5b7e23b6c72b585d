// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/requests.hpp>
#include <lockstep/mpi/world_watch.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/warning.hpp>

#include <cstdlib>
#include <exception>
#include <memory>

#include <unistd.h>

namespace lockstep::mpi::detail {

// MPI in this process. If the program has not initialised MPI, the first use does, and MPI is
// finalised when the process ends. Never destroyed.
//
// One communication thread serves all groups, so that one thread at a time calls MPI.
//
// The watchdog exists from the first group of all processes on. It ends when MPI_Finalize begins,
// once all ranks have come there. After a fault MPI_Finalize is skipped: it would wait for the
// missing rank.
class Runtime {
 public:
  static Runtime& instance() { return lockstep::detail::never_destroyed<Runtime>(); }

  const std::shared_ptr<distributed::detail::CommunicationThread>& thread() const {
    return thread_;
  }

  // Null until `watch`, and if nobody watches.
  const std::shared_ptr<distributed::Watchdog>& watchdog() const { return watchdog_; }

  // Starts to watch all processes, which all call it, between operations. Does nothing if it was
  // called before, or if there is only one process.
  void watch() {
    if (world_ != MPI_COMM_NULL) return;
    MPI_Comm world = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
    watchdog_ = watch_world(world);
    world_ = world;  // if watch_world throws, it does so on all ranks, and the next call retries
    if (!watchdog_) return;
    terminate_ = std::set_terminate(&at_terminate);
  }

 private:
  friend Runtime& lockstep::detail::never_destroyed<Runtime>();

  Runtime()
      : thread_(std::make_shared<distributed::detail::CommunicationThread>(
            "communication", distributed::detail::CommunicationThread::Waits::polling)) {
    int initialized = 0;
    check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
    check_not_finalized();
    int level = MPI_THREAD_SINGLE;
    if (initialized) {
      check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
                "MPI_Init_thread");
    }
    check<Error>(level >= MPI_THREAD_SERIALIZED, "MPI was initialised with MPI_THREAD_",
                 level == MPI_THREAD_SINGLE ? "SINGLE" : "FUNNELED",
                 ", but lockstep's communication thread needs MPI_THREAD_SERIALIZED: ask "
                 "MPI_Init_thread for it");
    call_at_finalize();
    program_finalizes_ = initialized != 0;
    if (initialized) return;
    // Some MPIs do not report an error of MPI_Test to the request's communicator.
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    end_with_process();
  }

  // A process that fails may leave others waiting for it in a collective, and MPI_Finalize would
  // then wait for them. The watchdog tells them; without one they are aborted.
  void end_with_process() {
#ifdef __GLIBC__
    ::on_exit([](int status, void* self) { static_cast<Runtime*>(self)->end(status); }, this);
#else
    std::atexit([] { instance().end(0); });
#endif
  }

  void end(int status) {
    if (lockstep::detail::forked() || finalized()) return;
    if (status == 0) {
      thread_->drain();
      thread_->between_operations([&] {
        thread_->remove_all();
        MPI_Finalize();
      });
    } else if (watchdog_) {
      watchdog_->abort(lockstep::detail::str("it has ended with exit status ", status));
      quit(status);
    } else {
      MPI_Abort(MPI_COMM_WORLD, status);
    }
  }

  // Ends the process without MPI_Finalize, which its launcher also notices.
  [[noreturn]] void quit(int status) {
    // Rank 0 tells the others here, before the process ends.
    watchdog_->leave();
    std::fflush(nullptr);
    ::_exit(status);
  }

  // MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else.
  void call_at_finalize() {
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &at_finalize, &key, nullptr),
              "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
  }
  static int at_finalize(MPI_Comm, int, void* self, void*) {
    auto& runtime = *static_cast<Runtime*>(self);
    // The communication thread may have a group to end yet. (`end` has waited for it already.)
    if (runtime.program_finalizes_) runtime.thread_->drain();
    if (runtime.watchdog_) runtime.end_watch();
    return MPI_SUCCESS;
  }

  // Ends the watch when all ranks have come here, however late. Those that wait for this rank in a
  // collective learn that it has skipped it.
  void end_watch() {
    try {
      watchdog_->finish();
      watchdog_->check();
      complete("MPI_Ibarrier", watchdog_.get(),
               [&](MPI_Request* request) { return MPI_Ibarrier(world_, request); });
    } catch (const std::exception& error) {
      warn(lockstep::detail::str("this process ends without MPI_Finalize: ", error.what()));
      quit(EXIT_FAILURE);
    }
    watchdog_->leave();
  }

  // Called for an uncaught exception.
  [[noreturn]] static void at_terminate() {
    const Runtime& runtime = instance();
    const std::exception_ptr error = std::current_exception();
    if (error && !lockstep::detail::forked()) {
      runtime.watchdog_->abort("it has thrown " + lockstep::detail::described(error).text());
    }
    runtime.terminate_();
    std::abort();
  }

  const std::shared_ptr<distributed::detail::CommunicationThread> thread_;
  bool program_finalizes_ = false;  // the program has initialised MPI
  // Set by `watch`.
  MPI_Comm world_ = MPI_COMM_NULL;
  std::shared_ptr<distributed::Watchdog> watchdog_;
  std::terminate_handler terminate_ = nullptr;  // the previous handler
};

}  // namespace lockstep::mpi::detail
