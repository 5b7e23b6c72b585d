// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>

#include <cstdlib>
#include <memory>
#include <string>

namespace lockstep::mpi {

namespace detail {

// Throws what MPI says of a code, unless it is success.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw Error(lockstep::detail::str(call, " failed with code ", code, ": ",
                                    std::string(text, static_cast<std::size_t>(length))));
}

constexpr const char* thread_level_name(int level) {
  return level == MPI_THREAD_SINGLE     ? "MPI_THREAD_SINGLE"
         : level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                        : "MPI_THREAD_SERIALIZED";
}

// MPI in this process: initialised at first use, unless the program has done so, and finalised at
// its end only if it was initialised here. Never destroyed.
//
// One communication thread serves all groups, so that MPI is called by one thread at a time.
class Runtime {
 public:
  static Runtime& instance() {
    static Runtime& runtime = *new Runtime;
    return runtime;
  }

  const std::shared_ptr<distributed::detail::CommunicationThread>& thread() const {
    return thread_;
  }

  // True if nothing of MPI may be called any more.
  static bool finalized() {
    int finalized = 0;
    return MPI_Finalized(&finalized) == MPI_SUCCESS && finalized != 0;
  }

 private:
  Runtime() : thread_(std::make_shared<distributed::detail::CommunicationThread>()) {
    int initialized = 0;
    check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
    check<Error>(!finalized(), "MPI has been finalised in this process already");
    int level = MPI_THREAD_SINGLE;
    if (initialized) {
      check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
                "MPI_Init_thread");
    }
    check<Error>(level >= MPI_THREAD_SERIALIZED, "MPI was initialised with ",
                 thread_level_name(level), ", but lockstep's communication thread needs ",
                 "MPI_THREAD_SERIALIZED: ask MPI_Init_thread for it");
    if (initialized) return;
    // Not every MPI has an error of MPI_Test handled by the communicator of the request.
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    end_with_process();
  }

  // A process that fails may leave others waiting for it in a collective, and MPI_Finalize would
  // then wait for them: it takes the whole world down instead.
  void end_with_process() {
#ifdef __GLIBC__
    ::on_exit(
        [](int status, void* self) {
          if (finalized()) return;
          if (status != 0) {
            MPI_Abort(MPI_COMM_WORLD, status);
          } else {
            static_cast<Runtime*>(self)->finalize();
          }
        },
        this);
#else
    std::atexit([] {
      if (!finalized()) instance().finalize();
    });
#endif
  }

  void finalize() const {
    thread_->drain();
    thread_->stop_attending([] { MPI_Finalize(); });
  }

  const std::shared_ptr<distributed::detail::CommunicationThread> thread_;
};

}  // namespace detail

}  // namespace lockstep::mpi
