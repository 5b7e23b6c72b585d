// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep {

namespace detail {

// A backward pass as the hooks and nodes that run within it see it: its number, the leaves that it
// reaches, and the callbacks at its end.
//
// A pass that a node of another pass starts is a part of that outer pass: it has the outer one's
// number, and its callbacks are called at the end of the outermost one.
//
// Threads: the threads of this pass, and of the passes within it, may call any member.
class BackwardPass : NonCopyable {
 public:
  explicit BackwardPass(BackwardPass* outer);

  // Different for every pass of the process, and never 0.
  std::uint64_t number() const { return number_; }
  // Whether the graph of this pass, or of one around it, leads to the leaf. Passes within this one
  // are not asked: they may begin later.
  bool reaches(const Tensor& leaf) const;
  // Whether the node that runs is certainly the last of the pass. False if other threads may be at
  // work.
  bool at_last_node() const { return !outer_ && is_last_node(); }

  // Says that leaves may have slots for their gradients (grad_hooks.hpp), and so lets nodes ask for
  // them. A pass that captures gradients does not ask.
  void offer_gradient_slots() {
    outermost_->offers_gradient_slots_.store(true, std::memory_order_relaxed);
  }
  // Whether nodes of this pass are to ask leaves for slots.
  bool offers_gradient_slots();

  void queue_callback(std::function<void()> callback);

  // Lanes run side by side, but a rank's collectives have to come in one order: the lane of the
  // device that asks first may issue them. Returns that device; another one's lane may not.
  Device claim_collectives(Device device);

 protected:
  ~BackwardPass() = default;

  virtual bool leads_to(const Tensor& leaf) const = 0;
  virtual bool is_last_node() const = 0;

  // Called before the pass begins if it captures gradients, so that not all of them go to leaves.
  void note_capture() { captures_any_ = true; }

  // Calls the callbacks in the order in which they came, also those that a callback adds, and also
  // if one throws; then throws the first exception. Called by the thread that called backward, once
  // the lanes have ended. A pass within another one leaves them to the outermost.
  void run_callbacks();
  bool has_callbacks() const { return !callbacks_.empty(); }

 private:
  BackwardPass* const outer_;
  BackwardPass* const outermost_;
  const std::uint64_t number_;
  bool captures_any_ = false;
  std::atomic<bool> offers_gradient_slots_{false};  // relaxed: who offers has locks of its own
  std::mutex mutex_;                                // guards all below while the lanes run
  std::vector<std::function<void()>> callbacks_;
  std::optional<Device> collectives_;  // whose lane issues them
};

// The pass that the calling thread works for; null outside of any.
inline constinit thread_local BackwardPass* current_backward_pass = nullptr;

// Makes `pass` the calling thread's until destroyed.
struct BackwardPassScope : ScopedValue<BackwardPass*> {
  explicit BackwardPassScope(BackwardPass& pass) : ScopedValue(current_backward_pass, &pass) {}
};

}  // namespace detail

namespace autograd {

// Has `callback` called at the end of the backward pass that the calling thread works for: from a
// hook, or from an operation's backward.
//
// It is called by the thread that called backward, once every node has run and that thread's
// streams wait for all that the nodes have issued. A pass that is started within another one leaves
// its callbacks to that one's end, also if it fails itself. If the outermost pass fails, none is
// called.
//
// **Torch counterpart.** Engine::queue_callback.
// **Threads and exceptions.** An AutogradError outside a pass. What a callback throws comes out of
// backward; the other callbacks are called all the same.
void queue_callback(std::function<void()> callback);

}  // namespace autograd

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/backward_pass.ipp>
#endif
