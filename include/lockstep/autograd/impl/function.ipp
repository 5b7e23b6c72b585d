// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE OpNode::~OpNode() {
  if (op_) type_.destroy(op_);
}

LOCKSTEP_INLINE const char* OpNode::name() const { return type_.name; }

LOCKSTEP_INLINE void OpNode::release_saved() {
  if (op_ && type_.saves) type_.destroy(std::exchange(op_, nullptr));
}

LOCKSTEP_INLINE void OpNode::apply(std::vector<Tensor>& gradients) {
  check<AutogradError>(op_ != nullptr, "backward a second time through ", name(),
                       ": what it saved was freed; pass retain_graph = true the first time");
  type_.backward(op_, *this, gradients);
}

LOCKSTEP_INLINE const Tensor& OpNode::only(const std::vector<Tensor>& gradients) const {
  check<AutogradError>(gradients.size() == 1, "backward of ", name(),
                       " takes one gradient, but its forward returned ", gradients.size(),
                       " tensors: it has to take a vector of gradients");
  return gradients[0];
}

LOCKSTEP_INLINE void OpNode::replace(std::vector<Tensor>& gradients, const Results& results) const {
  check<AutogradError>(results.size() == next_edges.size(), "backward of ", name(), " returned ",
                       results.size(), " gradients for ", next_edges.size(), " tensor arguments");
  gradients.resize(results.size());
  std::move(results.begin(), results.end(), gradients.begin());
}

LOCKSTEP_INLINE void OpNode::own(const Results& outputs, const std::shared_ptr<Node>& owner) {
  bool streamed = false;
  std::size_t number = 0;
  if (outputs.size() > 1) others_.resize(outputs.size() - 1);
  for (Tensor& output : outputs) {
    const std::size_t nr = number++;
    if (!output.defined()) continue;
    if (!streamed) set_stream(current_stream(output.device()));
    streamed = true;
    // If an operation returns an argument, or what it has saved, its result must still be another
    // variable.
    const TensorImpl* kept = nullptr;
    if (output.impl().use_count() > 1) {
      kept = output.impl().get();
      owner->set_self(owner);
      output = make_view(output);
    }
    if (!is_floating_point(output.dtype())) continue;
    output.impl()->grad_fn = owner;
    output.impl()->output_nr = nr;
    output.impl()->requires_grad = true;
    Result& result = nr == 0 ? first_ : others_[nr - 1];
    result.sizes = output.sizes();
    result.dtype = output.dtype();
    result.device = output.device();
    result.kept = kept;
  }
  set_num_inputs(outputs.size());
}

LOCKSTEP_INLINE std::optional<std::size_t> OpNode::kept_result(const Tensor& tensor) const {
  if (first_.kept == tensor.impl().get()) return 0;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (others_[i].kept == tensor.impl().get()) return i + 1;
  }
  return {};
}

inline bool any_is_recorded(std::initializer_list<Operands> operands) {
  if (!autograd_state().records()) return false;
  for (const Operands& some : operands) {
    for (const Tensor& tensor : some) {
      if (tensor.defined() && tensor.requires_grad()) return true;
    }
  }
  return false;
}

LOCKSTEP_INLINE RunningOperation::RunningOperation(const OpType& type, void* op,
                                                   std::initializer_list<Operands> operands)
    : scope_(any_is_recorded(operands)), op_(op) {
  if (!autograd_state().saving) return;
  node_ = type.make_node(type, op);
  op_ = node_->op();
  std::size_t tensors = 0;
  for (const Operands& some : operands) tensors += some.size();
  node_->next_edges.reserve(tensors);
  for (const Operands& some : operands) {
    for (const Tensor& tensor : some) node_->next_edges.push_back(gradient_edge(tensor));
  }
}

LOCKSTEP_INLINE void RunningOperation::own(const Results& outputs) {
  if (!node_) {
    for (Tensor& output : outputs) {
      if (output.defined() && output.requires_grad()) output = make_view(output);
    }
    return;
  }
  if (output_saved) node_->set_self(node_);
  scope_.leave();
  node_->own(outputs, node_);
}

// What the engine itself does to gradients are operations like any other, defined here because they
// need `apply`.
struct CastGradient {
  static constexpr const char* name = "cast_gradient";
  Dtype dtype;
  Dtype before = dtype;

  Tensor forward(const Tensor& gradient) {
    before = gradient.dtype();
    return cast(gradient, dtype);
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(CastGradient{before}, grad);
  }
};

LOCKSTEP_INLINE void OpNode::fit(std::size_t input_nr, Tensor& gradient) const {
  const Result& result = input_nr == 0 ? first_ : others_[input_nr - 1];
  check<AutogradError>(gradient.sizes() == result.sizes, "a gradient of shape ", gradient.sizes(),
                       " was returned for the result of ", name(), ", which is of shape ",
                       result.sizes);
  check<DeviceError>(gradient.device() == result.device, "a gradient on ", gradient.device(),
                     " was returned for the result of ", name(), ", which is on ", result.device);
  if (gradient.dtype() != result.dtype) [[unlikely]] {
    gradient = lockstep::apply(CastGradient{result.dtype}, gradient);
  }
}

struct SumGradients {
  static constexpr const char* name = "sum_gradients";

  Tensor forward(const Tensor& a, const Tensor& b) const {
    check_summable(a, b);
    if (a.is_sparse() || b.is_sparse()) [[unlikely]] {
      if (a.is_sparse() && b.is_sparse()) return sum_sparse(a, b);
      return forward(a.to_dense(), b.to_dense());
    }
    Tensor total = empty(a.sizes(), a.options());
    copy_into(total, a);
    add_in_place(total, b);
    return total;
  }

  std::array<Tensor, 2> backward(const Backward&, const Tensor& grad) const { return {grad, grad}; }
};

LOCKSTEP_INLINE Tensor sum_gradients(const Tensor& a, const Tensor& b) {
  return apply(SumGradients{}, a, b);
}

}  // namespace lockstep::detail
