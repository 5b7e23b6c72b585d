// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The tensors among an operation's arguments, in order.
template <class F>
void for_each_tensor(const Tensor& tensor, F&& visit) {
  visit(tensor);
}
template <class F>
void for_each_tensor(const std::vector<Tensor>& tensors, F&& visit) {
  for (const Tensor& tensor : tensors) visit(tensor);
}
template <class T, class F>
requires(!std::derived_from<T, Tensor>) void for_each_tensor(const T&, F&&) {}

// Whether an operation on the tensor would be recorded.
inline bool is_recorded(const Tensor& tensor) {
  return autograd_state().records() && tensor.defined() && tensor.requires_grad();
}

// What holds while an operation's `forward` runs: if it is recorded, what it calls is not, and what
// it saves is for a backward.
class ForwardScope {
 public:
  ForwardScope(AutogradState& state, bool recorded) : state_(state), before_(state) {
    state_.grad = before_.grad && !recorded;
    state_.saving = recorded;
    state_.discarding = !recorded;
    output_saved = false;
  }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  ~ForwardScope() {
    state_ = before_;
    output_saved = output_saved_before_;
  }

 private:
  AutogradState& state_;
  const AutogradState before_;
  const bool output_saved_before_ = output_saved;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_operand(const char* operation,
                                                                const OperandError& error) {
  fail<ValueError>(operation, ": ", error.what());
}

// Runs the operation; where it comes to a tensor that it cannot read, the error names it.
template <class Op, class... Args>
auto forward_of(Op& op, const Args&... args) {
  try {
    return op.forward(args...);
  } catch (const OperandError& error) {
    fail_operand(Op::name, error);
  }
}

// What the node of a recorded operation does whatever the operation is: compiled once.
class RecordedNode : public Node {
 public:
  RecordedNode() : Node(default_stream(Device())) {}

  // One more tensor argument of forward.
  void connect(const Tensor& argument) { next_edges.push_back(gradient_edge(argument)); }
  // That so many tensors are to come.
  void expect(std::size_t arguments) { next_edges.reserve(arguments); }

  // Makes the outputs of forward the results of this node, which `owner` owns.
  void own(Tensor& output, const std::shared_ptr<Node>& owner) {
    set_stream(current_stream(output.device()));
    own(output, 0, owner);
  }
  void own(std::vector<Tensor>& outputs, const std::shared_ptr<Node>& owner) {
    const auto first = std::find_if(outputs.begin(), outputs.end(),
                                    [](const Tensor& output) { return output.defined(); });
    if (first != outputs.end()) set_stream(current_stream(first->device()));
    for (std::size_t i = 0; i < outputs.size(); ++i) own(outputs[i], i, owner);
    set_num_inputs(outputs.size());
  }

 protected:
  void check_saved(bool saved) const {
    if (!saved) [[unlikely]]
      fail_freed();
  }

  // Puts what backward returned in the place of what it got.
  void replace(std::vector<Tensor>& gradients, std::vector<Tensor> results) const {
    replace(gradients, results.data(), results.size());
  }
  void replace(std::vector<Tensor>& gradients, Tensor result) const {
    replace(gradients, &result, 1);
  }
  template <std::size_t N>
  void replace(std::vector<Tensor>& gradients, std::array<Tensor, N> results) const {
    replace(gradients, results.data(), N);
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] void fail_freed() const {
    fail<AutogradError>("backward a second time through ", name(),
                        ": what it saved was freed; pass retain_graph = true the first time");
  }

  void replace(std::vector<Tensor>& gradients, Tensor* results, std::size_t count) const {
    check<AutogradError>(count == next_edges.size(), "backward of ", name(), " returned ", count,
                         " gradients for ", next_edges.size(), " tensor arguments");
    gradients.resize(count);
    std::move(results, results + count, gradients.begin());
  }

  static void own(Tensor& output, std::size_t number, const std::shared_ptr<Node>& owner) {
    if (!output.defined()) return;
    // An operation may hand an argument through; the result is a variable of its own all the same.
    if (output.impl().use_count() > 1) output = make_view(output);
    if (!is_floating_point(output.dtype())) return;
    output.impl()->grad_fn = owner;
    output.impl()->output_nr = number;
    output.impl()->requires_grad = true;
  }
};

// The node of an operation written as a struct with `forward` and `backward`: the struct itself is
// what is saved.
//
// A union and not a std::optional, which would be compiled for each of a program's many operations.
template <class Op>
class OpNode final : public RecordedNode {
 public:
  explicit OpNode(Op&& op) : op_(std::move(op)) {}
  ~OpNode() override { OpNode::release_saved(); }

  Op& op() { return op_; }
  const char* name() const override { return Op::name; }
  void release_saved() override {
    if (std::exchange(saved_, false)) op_.~Op();
  }

  void apply(std::vector<Tensor>& gradients) override {
    check_saved(saved_);
    const Backward context(*this);
    if constexpr (requires { op_.backward(context, std::move(gradients)); }) {
      replace(gradients, op_.backward(context, std::move(gradients)));
    } else if constexpr (requires { op_.backward(context, gradients); }) {
      replace(gradients, op_.backward(context, gradients));
    } else {
      replace(gradients, op_.backward(context, gradients[0]));
    }
  }

 private:
  union {
    Op op_;  // there as long as saved_
  };
  bool saved_ = true;
};

// Where a node lies, beside the counts of the shared_ptr that owns it.
template <std::size_t Bytes, std::size_t Alignment>
struct NodeMemory {
  NodeMemory() {}
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  ~NodeMemory() {
    if (node) node->~Node();
  }
  alignas(Alignment) std::byte bytes[Bytes];
  Node* node = nullptr;
};

// An OpNode of `op`, as make_shared would make one; but its memory is of one of a few types, not of
// one for each operation.
template <class Op>
std::shared_ptr<Node> make_node(Op&& op) {
  constexpr std::size_t kStep = 128;
  constexpr std::size_t kBytes = (sizeof(OpNode<Op>) + kStep - 1) / kStep * kStep;
  constexpr std::size_t kAlignment = std::max(alignof(OpNode<Op>), alignof(std::max_align_t));
  auto memory = make_recycled<NodeMemory<kBytes, kAlignment>>();
  auto* const node = ::new (static_cast<void*>(memory->bytes)) OpNode<Op>(std::move(op));
  memory->node = node;
  return std::shared_ptr<Node>(std::move(memory), node);
}

}  // namespace detail

// Runs a differentiable operation and records it if a tensor among its arguments requires grad.
//
// An operation is a struct. Its members are its parameters and what it saves; `forward` takes the
// arguments (Tensors, vectors of Tensors, anything else) and returns a Tensor or a vector of them;
// `backward` takes the Backward and the gradient of the result (a vector of them where forward
// returns one, undefined where no gradient came) and returns a Tensor, an array or a vector: one
// gradient for each tensor argument, undefined where there is none. Operations called in `forward`
// are not recorded. A backward written with differentiable functions has derivatives of its own.
//
// **Torch counterpart.** torch::autograd::Function.
// **Backward.** On the stream that is current here on the result's device.
// **Example.**
//   struct Cube {
//     static constexpr const char* name = "cube";
//     ls::Saved x;
//     ls::Tensor forward(const ls::Tensor& input) { x = input; return input * input * input; }
//     ls::Tensor backward(const ls::Backward& saved, const ls::Tensor& grad) {
//       return grad * saved(x) * saved(x) * 3;
//     }
//   };
//   ls::Tensor y = ls::apply(Cube{}, x);
template <class Op, class... Args>
auto apply(Op op, const Args&... args) {
  detail::AutogradState& state = detail::autograd_state();
  bool record = false;
  std::size_t tensors = 0;
  if (state.records()) {
    const auto look = [&record, &tensors](const Tensor& tensor) {
      ++tensors;
      record = record || (tensor.defined() && tensor.requires_grad());
    };
    (detail::for_each_tensor(args, look), ...);
  }
  if (!record) {
    const detail::ForwardScope scope(state, false);
    return detail::forward_of(op, args...);
  }

  const std::shared_ptr<Node> owner = detail::make_node(std::move(op));
  auto* const node = static_cast<detail::OpNode<Op>*>(owner.get());
  node->expect(tensors);
  const auto connect = [node](const Tensor& tensor) { node->connect(tensor); };
  (detail::for_each_tensor(args, connect), ...);
  auto outputs = [&] {
    const detail::ForwardScope scope(state, true);
    auto results = detail::forward_of(node->op(), args...);
    if (detail::output_saved) node->set_self(owner);
    return results;
  }();
  node->own(outputs, owner);
  return outputs;
}

}  // namespace lockstep

// The engine's sum of gradients is itself such an operation; whoever records one needs it.
#include <lockstep/autograd/sum_gradients.hpp>
