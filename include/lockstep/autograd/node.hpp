// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {
struct GradientHooks;  // autograd/grad_hooks.hpp
}  // namespace detail

// Where a gradient goes: input number `input_nr` of a node; nowhere if there is no node.
struct Edge {
  std::shared_ptr<Node> node;
  std::size_t input_nr = 0;
};

// A recorded operation, seen backwards: its inputs are the gradients of the operation's outputs;
// its outputs go along `next_edges`, one for each tensor that the operation took.
//
// **Torch counterpart.** torch::autograd::Node.
// **Devices and streams.** Runs on the stream that the operation ran on.
// **Threads and exceptions.** Built by one thread; one backward pass at a time runs it.
class Node : detail::NonCopyable {
 public:
  explicit Node(Stream stream) : stream_(stream) {}
  virtual ~Node() {
    for (Edge& edge : next_edges) detail::release(std::move(edge.node));
  }

  virtual const char* name() const = 0;
  // Replaces the gradients of its inputs by those that go along `next_edges`, in that order. An
  // undefined gradient, on either side, is zero and costs nothing.
  virtual void apply(std::vector<Tensor>& gradients) = 0;
  // Throws unless `gradient`, which is defined, can be that of input number `input_nr`: it has the
  // shape and the device of that result. Converts it to the result's dtype.
  virtual void fit(std::size_t /*input_nr*/, Tensor& /*gradient*/) const {}
  // Frees what was saved for backward.
  virtual void release_saved() {}
  // True for the node that adds into a leaf's `grad`.
  virtual bool is_accumulator() const { return false; }
  // Memory to which the current stream may write the gradient that comes here in this pass, of its
  // shape, dtype and device; usually there is none, and the result is undefined. Asked for once in
  // a pass.
  virtual Tensor gradient_slot() { return {}; }

  // The shared_ptr that owns this node. Null unless an operation has saved an output, for which
  // `set_self` is called.
  std::shared_ptr<Node> self() const { return self_.lock(); }
  void set_self(const std::shared_ptr<Node>& self) { self_ = self; }

  const Stream& stream() const { return stream_; }
  std::size_t num_inputs() const { return num_inputs_; }

  std::vector<Edge, detail::RecyclingAllocator<Edge>> next_edges;
  // Called with the gradients of the inputs before they go anywhere else; null for none. Those of a
  // leaf are the leaf's. Guarded by a mutex of grad_hooks.ipp.
  std::shared_ptr<const detail::GradientHooks> gradient_hooks;
  std::atomic<bool> has_gradient_hooks{false};  // read without the mutex

 protected:
  void set_num_inputs(std::size_t count) { num_inputs_ = count; }
  void set_stream(Stream stream) { stream_ = stream; }

 private:
  Stream stream_;
  std::size_t num_inputs_ = 1;
  std::weak_ptr<Node> self_;
};

}  // namespace lockstep
