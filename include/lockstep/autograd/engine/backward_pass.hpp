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

// A backward pass as hooks and nodes see it: its number, the leaves that it reaches, and the
// callbacks at its end.
//
// A pass that a node of another pass starts is part of that outer pass: it shares its number, and
// its callbacks run at the end of the outermost one.
//
// Threads: all threads of this pass, and of the passes within it, may call any member.
class BackwardPass : NonCopyable {
 public:
  explicit BackwardPass(BackwardPass* outer);

  // Different for every outermost pass of the process, and never 0.
  std::uint64_t number() const { return number_; }
  // Whether the graph of this pass, or of one around it, leads to the leaf. Passes within it do not
  // count, since they may begin later.
  bool reaches(const Tensor& leaf) const;
  // True if the running node is certainly the last one of the pass. False if other threads may be
  // at work.
  bool at_last_node() const { return !outer_ && is_last_node(); }

  // Tells nodes that leaves may have slots for their gradients (grad_hooks.hpp). A pass that
  // captures gradients ignores it.
  void offer_gradient_slots() {
    outermost_->offers_gradient_slots_.store(true, std::memory_order_relaxed);
  }
  // Whether nodes of this pass should ask leaves for slots.
  bool offers_gradient_slots();

  void queue_callback(std::function<void()> callback);

  // Lanes run at once, but a rank's collectives need one order, so only the lane of the device that
  // claims them first may issue them. Returns that device.
  Device claim_collectives(Device device);

 protected:
  ~BackwardPass() = default;

  virtual bool leads_to(const Tensor& leaf) const = 0;
  virtual bool is_last_node() const = 0;

  // Called before the pass begins if it captures gradients, which then do not go to leaves.
  void note_capture() { captures_any_ = true; }

  // Calls the callbacks in order, including those that callbacks add, even if one throws; then
  // throws the first exception. A pass within another one leaves them to the outermost. Called by
  // the thread that called backward, once the lanes have ended.
  void run_callbacks();
  bool has_callbacks() const { return !callbacks_.empty(); }

 private:
  BackwardPass* const outer_;
  BackwardPass* const outermost_;
  const std::uint64_t number_;
  bool captures_any_ = false;
  std::atomic<bool> offers_gradient_slots_{
      false};         // relaxed: those who set it have their own locks
  std::mutex mutex_;  // guards all below while the lanes run
  std::vector<std::function<void()>> callbacks_;
  std::optional<Device> collectives_;  // the device whose lane issues them
};

// The pass that the calling thread works for; null outside any.
inline constinit thread_local BackwardPass* current_backward_pass = nullptr;

// Makes `pass` the calling thread's pass until destroyed.
struct BackwardPassScope : ScopedValue<BackwardPass*> {
  explicit BackwardPassScope(BackwardPass& pass) : ScopedValue(current_backward_pass, &pass) {}
};

}  // namespace detail

namespace autograd {

// Calls `callback` at the end of the backward pass that the calling thread works for. Use it in a
// hook, or in an operation's backward.
//
// The thread that called backward calls it, once every node has run and that thread's streams wait
// for the nodes' work. A pass started within another one leaves its callbacks to the end of that
// one, even if it fails itself. If the outermost pass fails, no callback is called.
//
// **Torch counterpart.** Engine::queue_callback.
// **Threads and exceptions.** An AutogradError outside a pass. Backward throws what a callback
// throws, after calling the others.
void queue_callback(std::function<void()> callback);

}  // namespace autograd

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/backward_pass.ipp>
#endif
