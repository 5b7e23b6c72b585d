// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <concepts>

namespace lockstep {

namespace detail {

struct AutocastState {
  bool enabled = false;
  Dtype dtype = Dtype::bf16;
};

inline AutocastState& autocast_state() {
  static constinit thread_local AutocastState state;
  return state;
}

}  // namespace detail

// True if operations on this thread choose the dtype that they compute in.
//
// **Torch counterpart.** torch.is_autocast_enabled.
inline bool is_autocast_enabled() { return detail::autocast_state().enabled; }

// The half-precision dtype that autocast chooses; bf16 unless set.
//
// **Torch counterpart.** torch.get_autocast_dtype.
inline Dtype autocast_dtype() { return detail::autocast_state().dtype; }

// Lets operations on this thread choose the dtype that they compute in, until the guard is
// destroyed: products run in half precision, losses in f32. Parameters keep their dtype.
//
// linear, matmul, conv2d, attention and recurrent networks convert floating-point arguments,
// including parameters, to `dtype` and return that. exp, log, pow, a number divided by a tensor,
// sum, softmax, log_softmax, layer_norm, group_norm and the losses convert half precision to f32;
// so do + − · /, maximum, minimum, where, cat and stack if their operands' dtypes differ. All other
// operations, and in-place members, compute in their arguments' dtypes. f64 is never converted.
//
// Wrap forward and loss, not backward, which computes in forward's dtypes; the gradient of an f32
// parameter is f32. Gradients of f16 underflow unless the loss is scaled; those of bf16 do not.
//
// **Torch counterpart.** torch.autocast, for all devices at once and without its cache of converted
// parameters; the operations are those of its CUDA lists.
// **Devices and streams.** Host devices convert half precision to f32, compute, and round once.
// **Threads and exceptions.** The state belongs to the thread; replicas have their caller's.
// DtypeError unless the dtype is bf16 or f16.
// **Example.**
//   ls::Tensor loss;
//   {
//     const ls::AutocastGuard guard{ls::Dtype::bf16};
//     loss = ls::cross_entropy(model(images), labels);
//   }
//   loss.backward();
class AutocastGuard {
 public:
  [[nodiscard]] explicit AutocastGuard(Dtype dtype = Dtype::bf16) : AutocastGuard(true, dtype) {}
  // With `enabled` false, turns autocast off instead. (A template, so that nothing else, such as
  // the string "bf16", converts to bool.)
  template <std::same_as<bool> B>
  [[nodiscard]] explicit AutocastGuard(B enabled, Dtype dtype = Dtype::bf16)
      : state_(detail::autocast_state(), {enabled, checked(dtype)}) {}

 private:
  static Dtype checked(Dtype dtype) {
    check<DtypeError>(detail::is_half_precision(dtype), "AutocastGuard: expected bf16 or f16, got ",
                      dtype);
    return dtype;
  }

  const detail::ScopedValue<detail::AutocastState> state_;
};

}  // namespace lockstep
