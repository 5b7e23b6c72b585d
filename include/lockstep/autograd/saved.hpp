// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/backward_pass.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep {

namespace detail {

// Whether the operation whose forward the calling thread runs has kept one of its outputs.
inline constinit thread_local bool output_saved = false;

}  // namespace detail

// A tensor that an operation keeps for its backward: a member of the operation's struct, assigned
// in forward and read through `Backward::operator()`.
//
// Reading it checks that the data has not changed since. An input is kept as it is; an output must
// be kept with `Saved::output`, or node and output would own each other for ever. An inference
// tensor is an AutogradError where the operation is recorded.
//
// **Torch counterpart.** torch::autograd::SavedVariable.
class Saved {
 public:
  Saved() = default;
  Saved(const Tensor& input) {
    if (detail::autograd_state().discards()) return;
    tensor_ = input;
    remember();
  }

  // `number` is which of the operation's outputs it is.
  static Saved output(const Tensor& tensor, std::size_t number = 0) {
    Saved saved;
    if (detail::autograd_state().discards()) return saved;
    saved.tensor_ = detail::make_view(tensor);
    saved.is_output_ = true;
    detail::output_saved = true;
    saved.output_nr_ = number;
    saved.remember();
    return saved;
  }

 private:
  friend class Backward;

  void remember() {
    if (!tensor_.defined()) return;
    check<AutogradError>(!tensor_.is_inference() || !detail::autograd_state().saving,
                         "Inference tensors cannot be saved for backward. To work around you can "
                         "make a clone to get a normal tensor and use it in autograd: a tensor of "
                         "shape ",
                         tensor_.sizes(), " on ", tensor_.device());
    version_ = tensor_.version();
    counter_ = tensor_.impl()->version.get();
  }

  Tensor tensor_;
  std::uint64_t version_ = 0;
  const detail::VersionCounter* counter_ = nullptr;  // only compared: assigning `.data` swaps it
  bool is_output_ = false;
  std::size_t output_nr_ = 0;
};

// What an operation's backward is told besides the gradients.
class Backward {
 public:
  // For a node that lives at least as long.
  explicit Backward(const Node& node) : node_(&node) {}

  // The saved tensor, with its place in the graph, so that formulas written with differentiable
  // functions have derivatives of their own. Throws an AutogradError if it has changed since.
  Tensor operator()(const Saved& saved) const {
    const Tensor& tensor = saved.tensor_;
    if (!tensor.defined()) return tensor;
    check<AutogradError>(
        tensor.version() == saved.version_ && tensor.impl()->version.get() == saved.counter_,
        "one of the variables needed for the gradient of ", node_->name(),
        " has been modified by an inplace operation: a tensor of shape ", tensor.sizes(), " on ",
        tensor.device(), " is at version ", tensor.version(), "; expected version ",
        saved.version_);
    if (!saved.is_output_) return tensor;
    std::shared_ptr<Node> node = node_->self();
    check<AutogradError>(node != nullptr, node_->name(), " has kept an output with Saved::output, ",
                         "but not in its forward, on the thread that ran that");
    Tensor linked = detail::make_view(tensor);
    linked.impl()->grad_fn = std::move(node);
    linked.impl()->output_nr = saved.output_nr_;
    linked.impl()->requires_grad = true;
    return linked;
  }

  // Whether the gradient of the operation's i-th tensor argument is wanted at all.
  bool needs(std::size_t i) const { return node_->next_edges[i].node != nullptr; }

  // Where the gradient of the i-th tensor argument would otherwise be copied to, for the operation
  // to write it there; undefined in most cases. A hint, which need not be taken: the place may be
  // of any layout. Asked once, by who returns that gradient, on the stream that will write it.
  Tensor place(std::size_t i) const {
    detail::BackwardPass* const pass = detail::current_backward_pass;
    if (!pass || !pass->offers_places() || !needs(i)) [[likely]]
      return {};
    return node_->next_edges[i].node->place_for_gradient();
  }

 private:
  const Node* node_;
};

}  // namespace lockstep
