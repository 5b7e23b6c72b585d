// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/config.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <exception>

namespace lockstep::detail {

// Worker threads that stand ready to help the thread that made the crew, at almost no cost until
// they are called.
//
// Helper i, from 1 to `helpers`, runs `help(i)` once if it is called and comes before `dismiss`.
// `help` must not throw and must outlive the crew, which only refers to it.
//
// **Threads and exceptions.** One thread makes, dismisses and destroys it. That thread and helpers
// that have come may `call` and `make_urgent` others, but each helper is called at most once. The
// constructor throws as run_team does; in a child forked meanwhile `dismiss` throws an Error.
class Crew : NonCopyable {
 public:
  // urgent wakes the helper; with low_priority it comes when it next looks for work.
  enum class Call { urgent, low_priority };

  Crew(std::size_t helpers, FunctionRef<void(std::size_t helper)> help);
  ~Crew();

  std::size_t helpers() const { return share_.team_size - 1; }

  void call(std::size_t helper, Call how) noexcept;

  // Makes a helper that was called with low priority come at once.
  void make_urgent(std::size_t helper) noexcept {
    share_.team->workers[helper - 1]->mailbox.make_urgent();
  }

  // A place for one error of a helper, null at first. Any thread of the crew may write it. Once the
  // crew has ended, its maker sees it and takes it out.
  std::exception_ptr& error(std::size_t helper) noexcept {
    return share_.team->workers[helper - 1]->error;
  }

  // Returns when every helper that has come has ended. The others never come.
  void dismiss();

 private:
  void withdraw_and_join() noexcept;

  WorkerPool& pool_;
  Share share_;
  const bool was_inside_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/threads/impl/crew.ipp>
#endif
