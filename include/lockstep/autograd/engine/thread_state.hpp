// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/foreign_thread_state.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>

#include <memory>
#include <vector>

namespace lockstep::detail {

// A thread's library state, as guards set it: grad mode, inference mode, autocast, current streams
// and random numbers, plus the state of other libraries (ForeignThreadState). A replica on another
// thread takes over its caller's.
class ThreadState {
 public:
  static ThreadState capture();

  // Makes it the calling thread's state until destroyed.
  class Scope : NonCopyable {
   public:
    explicit Scope(const ThreadState& state);
    ~Scope();

   private:
    std::vector<ForeignThreadState::Handle> foreign_;
    const AutogradStateScope autograd_;
    const ScopedValue<AutocastState> autocast_;
    std::vector<Stream> streams_before_;
    std::shared_ptr<RandomNumbers> random_before_;
  };

 private:
  struct Foreign {
    const ForeignThreadState* library;
    ForeignThreadState::Handle captured;
  };

  ThreadState() = default;

  AutogradState autograd_ = autograd_state();
  AutocastState autocast_ = autocast_state();
  std::vector<Stream> streams_;                                // those that guards have set
  std::shared_ptr<RandomNumbers> random_ = random_override();  // usually null: the process's
  std::vector<Foreign> foreign_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/thread_state.ipp>
#endif
