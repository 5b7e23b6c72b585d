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

// Whether the operation whose forward this thread runs has saved one of its outputs.
inline constinit thread_local bool output_saved = false;

}  // namespace detail

// A tensor that an operation keeps for its backward. It is a member of the operation's struct,
// assigned in forward and read through `Backward::operator()`.
//
// Reading it checks that the data has not changed. Arguments and results of the operation keep
// their place in the graph; second derivatives take anything else that forward computes for a
// constant. Saving an inference tensor is an AutogradError if the operation is recorded.
//
// **Torch counterpart.** torch::autograd::SavedVariable.
class Saved {
 public:
  Saved() = default;
  Saved(const Tensor& input);

  // Saved(tensor) for the output of this index, without a search among the operation's outputs.
  static Saved output(const Tensor& tensor, std::size_t number = 0);

 private:
  friend class Backward;

  void remember();

  Tensor tensor_;
  std::uint64_t version_ = 0;
  std::uint32_t replaced_ = 0;  // set_data gives the tensor another's version
  bool is_output_ = false;
  std::size_t output_nr_ = 0;
};

// What an operation's backward gets in addition to the gradients.
class Backward {
 public:
  // `node` must outlive this object.
  explicit Backward(const Node& node) : node_(&node) {}

  // The saved tensor, with its place in the graph, so that a backward of differentiable functions
  // can be differentiated. An AutogradError if it has changed since.
  Tensor operator()(const Saved& saved) const;

  // Whether the gradient of the operation's i-th tensor argument is needed.
  bool needs(std::size_t i) const { return node_->next_edges[i].node != nullptr; }

  // Memory where the operation may write the gradient of its i-th tensor argument, to save a copy;
  // usually undefined. The memory may have any layout, and need not be used. Only the code that
  // returns that gradient calls this, once, while the stream that will write it is current.
  Tensor gradient_slot(std::size_t i) const;

 private:
  const Node* node_;
};

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/saved.ipp>
#endif
