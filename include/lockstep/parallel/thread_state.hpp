// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>

#include <utility>
#include <vector>

namespace lockstep::detail {

// All that a thread carries for the library: what it sets with guards, and what a replica that runs
// on another thread must therefore find set as its caller had it.
class ThreadState {
 public:
  static ThreadState capture() { return ThreadState(is_grad_enabled(), stream_overrides()); }

  // Makes this the state of the calling thread until destroyed.
  class Scope {
   public:
    explicit Scope(const ThreadState& state)
        : grad_mode_(state.grad_enabled_), streams_before_(state.streams_) {
      stream_overrides().swap(streams_before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { stream_overrides().swap(streams_before_); }

   private:
    const GradModeGuard grad_mode_;
    std::vector<Stream> streams_before_;
  };

 private:
  ThreadState(bool grad_enabled, std::vector<Stream> streams)
      : grad_enabled_(grad_enabled), streams_(std::move(streams)) {}

  bool grad_enabled_;
  std::vector<Stream> streams_;
};

}  // namespace lockstep::detail
