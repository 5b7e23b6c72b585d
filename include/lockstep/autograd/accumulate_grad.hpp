// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The sum of two gradients of one shape, recorded where recording is on
// (autograd/sum_gradients.hpp; it is itself an operation, so it comes after this).
Tensor sum_gradients(const Tensor& a, const Tensor& b);

template <class T>
struct AddInPlaceKernel {
  View<T> out;
  View<const T> in;
  T alpha;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] += alpha * in[i]; }
};

// total += alpha * part, elementwise, for tensors of one shape, dtype and device; not recorded.
void add_in_place(const Tensor& total, const Tensor& part, double alpha = 1);

// Whether some element of a tensor is shown at several indices.
bool repeats_elements(const Tensor& tensor);

// The end of a gradient's way: adds it into the `grad` of a leaf, and calls the leaf's hooks. A new
// `grad` has the leaf's layout if that is contiguous or channels_last and backward is not recorded
// itself. Sparse gradients have a sparse sum, sparse and dense ones a dense one. A leaf that has
// been frozen since forward keeps the `grad` that it has.
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

  LOCKSTEP_INLINE Tensor place_for_gradient() override;

  LOCKSTEP_INLINE void apply(std::vector<Tensor>& gradients) override;

 private:
  // Returns the hooks.
  std::shared_ptr<const GradHooks> accumulate(Tensor& gradient, bool frozen);

  static Tensor sum_of_sparse(const Tensor& total, Tensor gradient);

  const Tensor variable_;
  // What this pass has given out, or another one that came between: then the gradient is copied.
  // Guarded by the variable's mutex.
  Tensor place_;
};

std::shared_ptr<Node> accumulator_of(const Tensor& leaf);

// Where the gradient of a tensor goes: to the operation that made it, into its `grad` if it is a
// leaf, nowhere if it needs none.
Edge gradient_edge(const Tensor& tensor);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/accumulate_grad.ipp>
#include <lockstep/autograd/function.hpp>  // brings sum_gradients
#endif
