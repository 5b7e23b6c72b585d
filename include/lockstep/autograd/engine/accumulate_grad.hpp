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

// Throws unless the two gradients of one tensor can be added up.
void check_summable(const Tensor& a, const Tensor& b);

// The sum of two gradients of one shape, recorded where recording is on. It is an operation itself,
// so its definition comes with `apply`.
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

// total += alpha * part, elementwise, for tensors of one shape, dtype and device; not recorded.
void add_in_place(const Tensor& total, const Tensor& part, Scalar alpha = 1);

// Adds the gradient to the variable's `grad`, which becomes a tensor of its own, recorded where
// recording is on; returns it.
Tensor add_to_grad(const Tensor& variable, const Tensor& gradient);

// The node at which a gradient arrives at a leaf: calls the leaf's hooks on it, adds it to the
// leaf's `grad`, then calls the other hooks. A new `grad` has the leaf's layout if that is
// contiguous or channels_last and the pass is not recorded. The sum of sparse gradients is sparse;
// that of a sparse and a dense one is dense. A leaf that has been frozen since forward keeps its
// `grad`, and of the other hooks only those with a gradient_slot are called.
//
// Threads: several backward passes may reach the same leaf; the variable's mutex is held while its
// `grad` changes, and not while the hooks run, which may ask for it.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor variable)
      : Node(current_stream(variable.device())), variable_(std::move(variable)) {}

  const char* name() const override { return "AccumulateGrad"; }
  bool is_accumulator() const override { return true; }
  const Tensor& variable() const { return variable_; }

  LOCKSTEP_INLINE Tensor gradient_slot() override;

  LOCKSTEP_INLINE void apply(std::vector<Tensor>& gradients) override;

  // Calls the leaf's hooks that come before `grad` changes, and throws unless the gradient has the
  // leaf's shape, dtype and device.
  void receive(std::vector<Tensor>& gradients) const;

 private:
  // Adds the gradient, unless `frozen`. Returns the leaf's hooks.
  std::shared_ptr<const LeafHooks> accumulate(Tensor& gradient, bool frozen);

  const Tensor variable_;
  // The slot given out last, by this pass or by another one that came in between. A gradient that
  // does not lie there is treated as one for which there was no slot. Guarded by the variable's
  // mutex.
  Tensor gradient_slot_;
};

// Where the gradient of a tensor goes: to the operation that made it, into its `grad` if it is a
// leaf, nowhere if it needs none.
Edge gradient_edge(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/accumulate_grad.ipp>
#include <lockstep/autograd/function.hpp>  // brings sum_gradients
#endif
