// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>

#include <memory>
#include <vector>

namespace lockstep::detail {

// All that a thread carries for the library: what it sets with guards, and what a replica that runs
// on another thread must therefore find set as its caller had it.
class ThreadState {
 public:
  static ThreadState capture() {
    return ThreadState(autograd_state(), autocast_state(), stream_overrides());
  }

  // Makes this the state of the calling thread until destroyed.
  class Scope {
   public:
    explicit Scope(const ThreadState& state)
        : autograd_(state.autograd_), autocast_(state.autocast_) {
      if (state.streams_) streams_before_ = *state.streams_;
      stream_overrides().swap(streams_before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { stream_overrides().swap(streams_before_); }

   private:
    const AutogradStateScope autograd_;
    const AutocastStateScope autocast_;
    std::vector<Stream> streams_before_;
  };

 private:
  ThreadState(const AutogradState& autograd, const AutocastState& autocast,
              const std::vector<Stream>& streams)
      : autograd_(autograd), autocast_(autocast) {
    if (!streams.empty()) streams_ = std::make_unique<const std::vector<Stream>>(streams);
  }

  AutogradState autograd_;
  AutocastState autocast_;
  std::unique_ptr<const std::vector<Stream>> streams_;  // null for none, which is the usual
};

}  // namespace lockstep::detail
