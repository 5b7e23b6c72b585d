// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace lockstep::detail {

inline constinit std::atomic<std::uint64_t> last_backward_pass{0};

LOCKSTEP_INLINE BackwardPass::BackwardPass(BackwardPass* outer)
    : outer_(outer),
      outermost_(outer ? outer->outermost_ : this),
      number_(outer ? outer->number_
                    : last_backward_pass.fetch_add(1, std::memory_order_relaxed) + 1) {}

LOCKSTEP_INLINE bool BackwardPass::reaches(const Tensor& leaf) const {
  const BackwardPass* pass = this;
  while (pass && !pass->leads_to(leaf)) pass = pass->outer_;
  return pass != nullptr;
}

LOCKSTEP_INLINE bool BackwardPass::offers_gradient_slots() {
  return !captures_any_ && outermost_->offers_gradient_slots_.load(std::memory_order_relaxed);
}

LOCKSTEP_INLINE void BackwardPass::queue_callback(std::function<void()> callback) {
  BackwardPass& pass = *outermost_;
  const std::lock_guard lock(pass.mutex_);
  pass.callbacks_.push_back(std::move(callback));
}

LOCKSTEP_INLINE Device BackwardPass::claim_collectives(Device device) {
  BackwardPass& pass = *outermost_;
  const std::lock_guard lock(pass.mutex_);
  if (!pass.collectives_) pass.collectives_ = device;
  return *pass.collectives_;
}

LOCKSTEP_INLINE void BackwardPass::run_callbacks() {
  std::exception_ptr error;
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void()> callback = std::move(callbacks_[i]);
    const std::exception_ptr thrown = thrown_by(callback);
    if (!error) error = thrown;
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::detail

namespace lockstep::autograd {

LOCKSTEP_INLINE void queue_callback(std::function<void()> callback) {
  check<AutogradError>(detail::current_backward_pass != nullptr,
                       "queue_callback: Final callbacks can only be installed during backward "
                       "pass.");
  detail::current_backward_pass->queue_callback(std::move(callback));
}

}  // namespace lockstep::autograd
