// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/foreign_thread_state.hpp>
#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE ThreadState ThreadState::capture() {
  ThreadState state;
  if (!StreamOverrides::empty()) state.streams_ = StreamOverrides::list();
  const ForeignThreadState* foreign = ForeignThreadState::first();
  for (; foreign != nullptr; foreign = foreign->next()) {
    state.foreign_.push_back({foreign, foreign->capture()});
  }
  return state;
}

LOCKSTEP_INLINE ThreadState::Scope::Scope(const ThreadState& state)
    : autograd_(state.autograd_),
      autocast_(autocast_state(), state.autocast_),
      streams_before_(state.streams_),
      random_before_(state.random_) {
  for (const Foreign& foreign : state.foreign_) {
    foreign_.push_back(foreign.library->enter(foreign.captured));
  }
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

LOCKSTEP_INLINE ThreadState::Scope::~Scope() {
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

}  // namespace lockstep::detail
