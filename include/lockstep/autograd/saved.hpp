// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

namespace detail {

// Whether the operation whose forward the calling thread runs has saved one of its outputs.
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
  Saved(const Tensor& input);

  // `number` is which of the operation's outputs it is.
  static Saved output(const Tensor& tensor, std::size_t number = 0);

 private:
  friend class Backward;

  void remember();

  Tensor tensor_;
  std::uint64_t version_ = 0;
  std::uint32_t replaced_ = 0;  // since set_data the version is another tensor's
  bool is_output_ = false;
  std::size_t output_nr_ = 0;
};

// What an operation's backward gets besides the gradients.
class Backward {
 public:
  // `node` has to outlive this object.
  explicit Backward(const Node& node) : node_(&node) {}

  // The saved tensor, with its place in the graph, so that formulas written with differentiable
  // functions have derivatives of their own. Throws an AutogradError if it has changed since.
  Tensor operator()(const Saved& saved) const;

  // Whether the gradient of the operation's i-th tensor argument is wanted at all.
  bool needs(std::size_t i) const { return node_->next_edges[i].node != nullptr; }

  // Memory to which the gradient of the i-th tensor argument would otherwise be copied, so that the
  // operation may write it there; undefined in most cases. The operation need not use it: the
  // memory may have any layout. Only the code that returns that gradient asks, once, with the
  // stream current that is going to write it.
  Tensor gradient_slot(std::size_t i) const;

 private:
  const Node* node_;
};

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/saved.ipp>
#endif
