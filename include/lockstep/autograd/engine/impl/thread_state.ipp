// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/foreign_thread_state.hpp>
#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE ThreadState ThreadState::capture() {
  ThreadState state(autograd_state(), autocast_state(), random_override());
  if (!StreamOverrides::empty()) {
    state.streams_ = std::make_unique<const std::vector<Stream>>(StreamOverrides::list());
  }
  const ForeignThreadState* foreign = ForeignThreadState::first();
  if (foreign != nullptr) [[unlikely]] {
    std::vector<Foreign> captured;
    for (; foreign != nullptr; foreign = foreign->next()) {
      captured.push_back({foreign, foreign->capture()});
    }
    state.foreign_ = std::make_unique<const std::vector<Foreign>>(std::move(captured));
  }
  return state;
}

LOCKSTEP_INLINE std::vector<ForeignThreadState::Handle> ThreadState::Scope::enter(
    const ThreadState& state) {
  std::vector<ForeignThreadState::Handle> entered;
  if (state.foreign_) [[unlikely]] {
    for (const Foreign& foreign : *state.foreign_) {
      entered.push_back(foreign.library->enter(foreign.captured));
    }
  }
  return entered;
}

LOCKSTEP_INLINE ThreadState::Scope::Scope(const ThreadState& state)
    : foreign_(enter(state)),
      autograd_(state.autograd_),
      autocast_(state.autocast_),
      random_before_(state.random_) {
  if (state.streams_) streams_before_ = *state.streams_;
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

LOCKSTEP_INLINE ThreadState::Scope::~Scope() {
  StreamOverrides::swap(streams_before_);
  random_override().swap(random_before_);
}

}  // namespace lockstep::detail
