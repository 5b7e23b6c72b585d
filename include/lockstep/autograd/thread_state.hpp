// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

// All that a thread carries for the library: what it sets with guards, and what a replica that runs
// on another thread must therefore find set as its caller had it.
class ThreadState {
 public:
  static ThreadState capture() {
    ThreadState state(autograd_state(), autocast_state(), random_override());
    if (!StreamOverrides::empty()) {
      state.streams_ = std::make_unique<const std::vector<Stream>>(StreamOverrides::list());
    }
    return state;
  }

  // Makes this the state of the calling thread until destroyed.
  class Scope {
   public:
    explicit Scope(const ThreadState& state)
        : autograd_(state.autograd_), autocast_(state.autocast_), random_before_(state.random_) {
      if (state.streams_) streams_before_ = *state.streams_;
      StreamOverrides::swap(streams_before_);
      random_override().swap(random_before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      StreamOverrides::swap(streams_before_);
      random_override().swap(random_before_);
    }

   private:
    const AutogradStateScope autograd_;
    const AutocastStateScope autocast_;
    std::vector<Stream> streams_before_;
    std::shared_ptr<RandomNumbers> random_before_;
  };

 private:
  ThreadState(const AutogradState& autograd, const AutocastState& autocast,
              std::shared_ptr<RandomNumbers> random)
      : autograd_(autograd), autocast_(autocast), random_(std::move(random)) {}

  AutogradState autograd_;
  AutocastState autocast_;
  std::unique_ptr<const std::vector<Stream>> streams_;  // null for none, which is the usual
  std::shared_ptr<RandomNumbers> random_;               // null for the process's, likewise
};

}  // namespace lockstep::detail
