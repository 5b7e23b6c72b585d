// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {
struct GradientHooks;  // autograd/grad_hooks.hpp
}  // namespace detail

// Where a gradient goes: to input number `input_nr` of a node, or nowhere if there is no node.
struct Edge {
  std::shared_ptr<Node> node;
  std::size_t input_nr = 0;
};

// A recorded operation, seen backwards. Its inputs are the gradients of the operation's outputs;
// its outputs go along `next_edges`, one for each tensor that the operation took.
//
// **Torch counterpart.** torch::autograd::Node.
// **Devices and streams.** Runs on the stream that the operation ran on.
// **Threads and exceptions.** One thread builds it; one backward pass at a time runs it.
class Node : detail::NonCopyable {
 public:
  explicit Node(Stream stream) : stream_(stream) {}
  virtual ~Node() {
    for (Edge& edge : next_edges) detail::release(std::move(edge.node));
  }

  virtual const char* name() const = 0;
  // Replaces the gradients of its inputs by those that go along `next_edges`, in order. An
  // undefined gradient is zero.
  virtual void apply(std::vector<Tensor>& gradients) = 0;
  // Converts `gradient`, which is defined, to the dtype of result number `input_nr`. Throws unless
  // it has the result's shape and device.
  virtual void fit(std::size_t /*input_nr*/, Tensor& /*gradient*/) const {}
  // The number of the result that forward returned as `tensor` itself and kept; nothing for others.
  virtual std::optional<std::size_t> kept_result(const Tensor& /*tensor*/) const { return {}; }
  virtual void release_saved() {}
  // True for the node that adds into a leaf's `grad`.
  virtual bool is_accumulator() const { return false; }
  // Memory where the current stream may write the gradient that comes to this node in this pass, in
  // its shape, dtype and device. Usually there is none, and the result is undefined. Called once in
  // a pass.
  virtual Tensor gradient_slot() { return {}; }

  // The shared_ptr that owns this node; null unless the operation may have saved an output and so
  // `set_self` was called.
  std::shared_ptr<Node> self() const { return self_.lock(); }
  void set_self(const std::shared_ptr<Node>& self) { self_ = self; }

  const Stream& stream() const { return stream_; }
  std::size_t num_inputs() const { return num_inputs_; }

  std::vector<Edge, detail::RecyclingAllocator<Edge>> next_edges;
  // Called with the gradients of the inputs before these go anywhere else; null for none. A leaf
  // keeps its own. Guarded by a mutex in grad_hooks.ipp.
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
