// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace lockstep::libtorch::detail {

namespace autograd = ::torch::autograd;

// How LibTorch owns nodes: by std::shared_ptr, or in newer versions by its own pointer type.
using NodePtr = decltype(autograd::Edge::function);

template <class N, class Pointer = NodePtr, class... Args>
Pointer make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<autograd::Node>>) {
    // LibTorch's deleteNode, found by argument lookup, since newer versions have none.
    return Pointer(new N(std::forward<Args>(args)...), [](N* old) { deleteNode(old); });
  } else {
    return Pointer(c10::make_intrusive<N>(std::forward<Args>(args)...));
  }
}

template <class N, class Pointer = NodePtr>
Pointer pointer_to(N& node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<autograd::Node>>) {
    return node.shared_from_this();
  } else {
    return Pointer::reclaim_copy(&node);
  }
}

// a + b, in a's memory if nothing else uses that and no derivative is wanted. Undefined tensors
// count as zeros.
inline at::Tensor added(at::Tensor a, const at::Tensor& b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (!at::GradMode::is_enabled() && a.use_count() == 1 && a.has_storage() &&
      a.storage().use_count() == 1 && a.is_non_overlapping_and_dense() && !b.is_sparse()) {
    return a.add_(b);
  }
  return a + b;
}

// Sums the gradients of a tensor's copies, one for each input, on the tensor's device, in the order
// of the copies. It lives as long as the copies, which all point at it.
class ReduceAdd : public autograd::Node {
 public:
  explicit ReduceAdd(const at::Tensor& original)
      : autograd::Node(autograd::edge_list{autograd::impl::gradient_edge(original)}),
        device_(original.device()) {}

  std::string name() const override { return "lockstep::ReduceAdd"; }

  autograd::variable_list apply(autograd::variable_list&& grads) override {
    at::Tensor sum;
    for (at::Tensor& grad : grads) {
      if (grad.defined()) sum = added(std::move(sum), grad.to(device_));
    }
    return {sum};
  }

 private:
  const at::Device device_;
};

}  // namespace lockstep::libtorch::detail
