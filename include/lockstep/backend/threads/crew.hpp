// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/worker_pool.hpp>
#include <lockstep/config.hpp>
#include <lockstep/function_ref.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <exception>

namespace lockstep::detail {

// Worker threads that stand ready to help the thread that made the crew, and cost it next to
// nothing as long as none is called.
//
// Helper i, from 1 to `helpers`, runs `help(i)` once if it is called and comes before `dismiss`.
// `help` must not throw, and the crew only refers to it: it must outlive the crew.
//
// **Threads and exceptions.** Made, dismissed and destroyed by one thread. That thread and helpers
// that have come may `call` and `make_urgent` others, but nobody calls a helper a second time.
// The constructor throws as run_team does; in a child forked meanwhile `dismiss` throws an Error.
class Crew : NonCopyable {
 public:
  // urgent: the helper is woken. low_priority: it comes when it looks for work itself.
  enum class Call { urgent, low_priority };

  Crew(std::size_t helpers, FunctionRef<void(std::size_t helper)> help);
  ~Crew();

  std::size_t helpers() const { return share_.team_size - 1; }

  void call(std::size_t helper, Call how) noexcept;

  // Lets a helper that was called with low priority come at once.
  void make_urgent(std::size_t helper) noexcept {
    share_.team->workers[helper - 1]->mailbox.make_urgent();
  }

  // A place for one error of a helper, null at first. Any thread of the crew may put one there; the
  // crew's end makes it visible to the crew's maker, which takes it out again.
  std::exception_ptr& error(std::size_t helper) noexcept {
    return share_.team->workers[helper - 1]->error;
  }

  // Returns when every helper that came has ended; those that have not come by then never will.
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
