// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/worker_pool.hpp>
#include <lockstep/config.hpp>

#include <cstddef>
#include <exception>

namespace lockstep::detail {

// Worker threads that stand ready to help the thread that made the crew, and cost it next to
// nothing as long as none is called.
//
// Helper i, from 1 to `helpers`, runs `invoke(context, i)` once if it is called and comes before
// `dismiss`. `invoke` must not throw.
//
// **Threads and exceptions.** Made, dismissed and destroyed by one thread. That thread and helpers
// that have come may `call` and `hurry` others, but nobody calls a helper a second time.
// The constructor throws as run_team does; in a child forked meanwhile `dismiss` throws an Error.
class Crew {
 public:
  // Whether a helper that is called is woken, or may come when it looks for itself.
  enum class Call { urgent, casual };

  Crew(std::size_t helpers, Share::Invoke invoke, void* context);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  std::size_t helpers() const { return share_.team_size - 1; }

  void call(std::size_t helper, Call how) noexcept;

  // Lets a helper that was called casually come at once.
  void hurry(std::size_t helper) noexcept { share_.team->workers[helper - 1]->box.hurry(); }

  // Room for one error a helper: null until somebody of the crew puts one there, which the crew's
  // end orders before what its maker does then. The maker takes it out again.
  std::exception_ptr& error(std::size_t helper) noexcept {
    return share_.team->workers[helper - 1]->error;
  }

  // Returns when every helper that came has ended; those that have not come by then never will.
  void dismiss();

 private:
  void part() noexcept;

  WorkerPool& pool_;
  Share share_;
  const bool was_inside_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/crew.ipp>
#endif
