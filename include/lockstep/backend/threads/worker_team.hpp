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

// Runs share(0) … share(n - 1), all at once, each on a thread of its own, and returns one
// exception_ptr a share when all have ended: what the share threw, or null.
//
// Share 0 runs on the calling thread, the others on persistent worker threads that are leased for
// this call. Each share has its thread even where they outnumber the cores, because one share may
// wait for another. What the caller did before the call is visible to every share, and what the
// shares did is visible to the caller afterwards. With n = 1 no thread is involved; with n = 0
// nothing happens.
//
// **Threads and exceptions.** May be called from any thread, from several at once, and from inside
// a share. `share` is called by n threads at once. If worker threads cannot be started, no share
// runs and an Error says how many were needed. In a child forked from a process that uses
// lockstep, an Error; a child forked inside a share must not return from it.
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

// As `try_run_team`, but throws what the share with the lowest index threw, once all have ended.
// Allocates nothing once the workers are there (teams of more than 17 do so a few times more).
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
