// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

namespace lockstep::detail {

inline TeamStats team_stats() { return WorkerPool::instance().stats(); }

// Runs share(0) … share(n - 1) at once, each on its own thread, and returns when all have ended:
// one exception_ptr per share, null unless the share threw.
//
// Share 0 runs on the calling thread, the others on persistent worker threads leased for this call.
// Each share has its thread even if they outnumber the cores, since one may wait for another.
// Shares see what the caller did before the call, and the caller then sees what they did. For n = 1
// no other thread is involved; for n = 0 nothing happens.
//
// **Threads and exceptions.** Any thread may call it, even several at once or inside a share. If
// worker threads cannot be started, no share runs and an Error says how many were needed. An Error
// in a child forked from a process that uses lockstep; a child forked inside a share must not
// return from it.
[[nodiscard]] inline std::vector<std::exception_ptr> try_run_team(
    std::size_t n, FunctionRef<void(std::size_t index)> share) {
  std::vector<std::exception_ptr> errors(n);
  if (n == 1) {
    errors[0] = thrown_by([&] { share(0); });
  } else if (n > 1) {
    TeamLease(n).run(share, [&errors](std::size_t index, std::exception_ptr error) {
      errors[index] = std::move(error);
    });
  }
  return errors;
}

// As `try_run_team`, but throws the exception of the lowest share, once all have ended. Allocates
// nothing once the workers exist (a few more times for teams of more than 17).
//
// **Example.**
//   run_team(devices.size(), [&](std::size_t i) { outputs[i] = replicas[i].forward(inputs[i]); });
inline void run_team(std::size_t n, FunctionRef<void(std::size_t index)> share) {
  if (n == 1) {
    share(0);
  } else if (n > 1) {
    std::exception_ptr first;
    TeamLease(n).run(share, [&first](std::size_t, std::exception_ptr error) {
      if (!first) first = std::move(error);
    });
    if (first) std::rethrow_exception(std::move(first));
  }
}

}  // namespace lockstep::detail
