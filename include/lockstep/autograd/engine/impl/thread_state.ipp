// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>

#include <memory>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE ThreadState ThreadState::capture() {
  ThreadState state(autograd_state(), autocast_state(), random_override());
  if (!StreamOverrides::empty()) {
    state.streams_ = std::make_unique<const std::vector<Stream>>(StreamOverrides::list());
  }
  return state;
}

LOCKSTEP_INLINE ThreadState::Scope::Scope(const ThreadState& state)
    : autograd_(state.autograd_), autocast_(state.autocast_), random_before_(state.random_) {
  if (state.streams_) streams_before_ = *state.streams_;
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

LOCKSTEP_INLINE ThreadState::Scope::~Scope() {
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

}  // namespace lockstep::detail
