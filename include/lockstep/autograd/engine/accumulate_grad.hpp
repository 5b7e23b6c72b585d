// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Throws unless two gradients of one tensor can be added.
void check_summable(const Tensor& a, const Tensor& b);

// The sum of two gradients of one shape; recorded if recording is on. It is an operation, so its
// definition comes with `apply`.
Tensor sum_gradients(const Tensor& a, const Tensor& b);

template <class T>
struct AddInPlaceKernel {
  View<T> out;
  View<const T> in;
  T alpha;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    using U = Wrapping<T>;
    out[i] = static_cast<T>(static_cast<U>(out[i]) + static_cast<U>(alpha) * static_cast<U>(in[i]));
  }
};

// Adds alpha * part to total, elementwise, for tensors of one shape, dtype and device. Not
// recorded.
void add_in_place(const Tensor& total, const Tensor& part, Scalar alpha = 1);

// Adds the gradient to the variable's `grad`, in a new tensor, and returns it. Recorded if
// recording is on.
Tensor add_to_grad(const Tensor& variable, const Tensor& gradient);

// The node where a gradient arrives at a leaf. It calls the leaf's hooks on the gradient, adds it
// to the leaf's `grad`, then calls the other hooks.
//
// A new `grad` has the leaf's layout if that is contiguous or channels_last and the pass is not
// recorded. A sum of sparse gradients is sparse; one of a sparse and a dense gradient is dense. A
// leaf frozen after forward keeps its `grad`, and of the other hooks only those with a
// gradient_slot are called.
//
// Threads: several backward passes may reach one leaf. The variable's mutex is held while its
// `grad` changes, but not while hooks run, since these may ask for it.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor variable)
      : Node(current_stream(variable.device())), variable_(std::move(variable)) {}

  const char* name() const override { return "AccumulateGrad"; }
  bool is_accumulator() const override { return true; }
  const Tensor& variable() const { return variable_; }

  LOCKSTEP_INLINE Tensor gradient_slot() override;

  LOCKSTEP_INLINE void apply(std::vector<Tensor>& gradients) override;

  // Calls the leaf's hooks on the gradient, and throws unless it has the leaf's shape, dtype and
  // device.
  void receive(std::vector<Tensor>& gradients) const;

 private:
  // Adds the gradient unless `frozen`. Returns the leaf's hooks.
  std::shared_ptr<const LeafHooks> accumulate(Tensor& gradient, bool frozen);

  const Tensor variable_;
  // The last slot given out, by this pass or by one that came in between. A gradient that is not in
  // it is treated as if there were no slot. Guarded by the variable's mutex.
  Tensor gradient_slot_;
};

// Where a tensor's gradient goes: to the operation that made it, into its `grad` if it is a leaf,
// or nowhere if it needs none.
Edge gradient_edge(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/accumulate_grad.ipp>
#include <lockstep/autograd/function.hpp>  // brings sum_gradients
#endif
