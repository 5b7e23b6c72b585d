// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The tensors in one argument of an operation: none, one, or a vector's.
using Operands = std::span<const Tensor>;
inline Operands operands_of(const Tensor& tensor) { return {&tensor, 1}; }
inline Operands operands_of(const std::vector<Tensor>& tensors) { return tensors; }
template <class T>
requires(!std::derived_from<T, Tensor>) Operands operands_of(const T&) {
  constexpr bool holds_tensors = requires {
    requires std::derived_from<typename T::value_type, Tensor>;
  };
  static_assert(!holds_tensors,
                "lockstep: an operation takes its tensors as Tensor or std::vector<Tensor>: those "
                "in another container would get no gradient");
  return {};
}

// The tensors that `forward` or `backward` returned: one, or a vector's or array's.
using Results = std::span<Tensor>;
inline Results results_of(Tensor& tensor) { return {&tensor, 1}; }
template <class List>
requires(!std::derived_from<List, Tensor>) Results results_of(List& list) { return list; }

// Whether an operation on the tensor would be recorded.
inline bool is_recorded(const Tensor& tensor) {
  return autograd_state().records() && tensor.defined() && tensor.requires_grad();
}

class OpNode;

// An operation's type, for code that is compiled once for all operations. `op` points to an object
// of that type.
struct OpType {
  const char* name;
  // Makes a node and moves `op` into it.
  std::shared_ptr<OpNode> (*make_node)(const OpType& type, void* op);
  void (*move)(void* to, void* op);
  void (*destroy)(void* op);
  // Whether backward destroys the operation, so that a second backward is refused; see `apply`.
  bool saves;
  // Calls the operation's backward and replaces `gradients` by its result.
  void (*backward)(void* op, const OpNode& node, std::vector<Tensor>& gradients);
};

// The node of an operation written as a struct with `forward` and `backward`. It holds the struct,
// with all that was saved.
class OpNode final : public Node {
 public:
  // Moves `op` to the memory at `place`, which lives as long as this node.
  OpNode(const OpType& type, void* place, void* op) : Node(default_stream(Device())), type_(type) {
    type.move(place, op);
    op_ = place;
  }
  LOCKSTEP_INLINE ~OpNode() override;

  void* op() { return op_; }
  LOCKSTEP_INLINE const char* name() const override;
  LOCKSTEP_INLINE void release_saved() override;
  LOCKSTEP_INLINE void apply(std::vector<Tensor>& gradients) override;
  LOCKSTEP_INLINE void fit(std::size_t input_nr, Tensor& gradient) const override;
  LOCKSTEP_INLINE std::optional<std::size_t> kept_result(const Tensor& tensor) const override;

  // Makes the outputs of forward results of this node, which `owner` owns.
  void own(const Results& outputs, const std::shared_ptr<Node>& owner);

  // The only gradient; throws if forward returned several results.
  const Tensor& only(const std::vector<Tensor>& gradients) const;
  void replace(std::vector<Tensor>& gradients, const Results& results) const;

 private:
  // What a result's gradient must be like.
  struct Result {
    Shape sizes;
    Dtype dtype = Dtype::f32;
    Device device;
    const TensorImpl* kept = nullptr;  // what forward has returned, if it has another handle on it
  };

  const OpType& type_;
  void* op_ = nullptr;  // null once released
  Result first_;        // most operations have no other
  std::vector<Result, RecyclingAllocator<Result>> others_;
};

// Memory for an operation of at most `Bytes` and its node, allocated together with the counts of
// the shared_ptr that owns them. Sizes are rounded up, so that this is compiled for a few sizes,
// not for every operation.
template <std::size_t Bytes, std::size_t Alignment>
struct NodeMemory {
  NodeMemory(const OpType& type, void* op) : node(type, bytes, op) {}

  alignas(Alignment) std::byte bytes[Bytes];
  OpNode node;
};

template <std::size_t Bytes, std::size_t Alignment>
std::shared_ptr<OpNode> make_node(const OpType& type, void* op) {
  auto memory = make_recycled<NodeMemory<Bytes, Alignment>>(type, op);
  OpNode* const node = &memory->node;
  return std::shared_ptr<OpNode>(std::move(memory), node);
}

template <class Op>
void move_op(void* to, void* op) {
  ::new (to) Op(std::move(*static_cast<Op*>(op)));
}

template <class Op>
void destroy_op(void* op) {
  static_cast<Op*>(op)->~Op();
}

template <class Op>
void op_backward(void* held, const OpNode& node, std::vector<Tensor>& gradients) {
  Op& op = *static_cast<Op*>(held);
  const Backward context(node);
  const auto replace = [&](auto results) { node.replace(gradients, results_of(results)); };
  if constexpr (requires { op.backward(context, std::move(gradients)); }) {
    replace(op.backward(context, std::move(gradients)));
  } else if constexpr (requires { op.backward(context, gradients); }) {
    replace(op.backward(context, gradients));
  } else {
    replace(op.backward(context, node.only(gradients)));
  }
}

// See `apply`.
template <class Op>
consteval bool saves() {
  if constexpr (requires { typename std::bool_constant<Op::saves>; }) {
    return Op::saves;
  } else {
    return !std::is_trivially_destructible_v<Op>;
  }
}

inline constexpr std::size_t kOpStep = 128;
template <class Op>
inline constinit const OpType op_type{Op::name,
                                      &make_node<(sizeof(Op) + kOpStep - 1) / kOpStep * kOpStep,
                                                 std::max(alignof(Op), alignof(std::max_align_t))>,
                                      &move_op<Op>,
                                      &destroy_op<Op>,
                                      saves<Op>(),
                                      &op_backward<Op>};

// The thread's state while an operation's `forward` runs. If the operation is recorded, the
// operations that it calls are not, and what it saves is kept for backward.
class ForwardScope : NonCopyable {
 public:
  explicit ForwardScope(bool recorded) : state_(autograd_state()), before_(state_) {
    state_.grad = before_.grad && !recorded;
    state_.saving = recorded;
    state_.discarding = !recorded;
    output_saved = false;
  }
  ~ForwardScope() { leave(); }

  void leave() {
    state_ = before_;
    output_saved = output_saved_before_;
  }

 private:
  AutogradState& state_;
  const AutogradState before_;
  const bool output_saved_before_ = output_saved;
};

// A running operation, from before its `forward` until its node, if it is recorded, owns the
// results.
class RunningOperation {
 public:
  // Moves `op` into a new node if it is recorded.
  RunningOperation(const OpType& type, void* op, std::initializer_list<Operands> operands);

  // The operation to call forward on: the one in the node if there is a node.
  void* op() const { return op_; }
  // Makes `outputs` the results of the node. Without a node, makes sure that none requires grad, as
  // an argument returned by forward may. Called after forward.
  void finish(const Results& outputs) {
    if (node_ || !autograd_state().records()) own(outputs);
  }

 private:
  void own(const Results& outputs);

  ForwardScope scope_;
  std::shared_ptr<OpNode> node_;
  void* op_;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_operand(const char* operation,
                                                                const OperandError& error) {
  fail<ValueError>(operation, ": ", error.what());
}

}  // namespace detail

// Runs a differentiable operation, and records it if a tensor among its arguments requires grad.
//
// An operation is a struct whose members are its parameters and what it saves. `forward` takes the
// arguments (Tensors, vectors of Tensors, anything else) and returns a Tensor or a vector of them;
// operations that a recorded one calls there are not recorded. `backward` takes a Backward and the
// gradient of the result, or a vector of gradients if forward returns a vector; they are undefined
// where none came. It returns one gradient for each tensor argument, in that argument's shape, or
// undefined: as a Tensor, an array or a vector. A gradient of another dtype is converted unless the
// argument is a leaf. A backward written with differentiable functions can itself be
// differentiated.
//
// A backward pass without retain_graph destroys the struct, and a second pass is then an
// AutogradError. A trivially destructible struct stays, since it has saved nothing worth freeing; a
// member `static constexpr bool saves` overrides this.
//
// **Torch counterpart.** torch::autograd::Function.
// **Backward.** Runs on the stream that is current here on the result's device.
// **Threads and exceptions.** An OperandError of `forward` becomes a ValueError that names the
// operation; other exceptions pass through.
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
  try {
    detail::RunningOperation running(detail::op_type<Op>, &op, {detail::operands_of(args)...});
    auto outputs = static_cast<Op*>(running.op())->forward(args...);
    running.finish(detail::results_of(outputs));
    return outputs;
  } catch (const OperandError& error) {  // a tensor that it cannot read
    detail::fail_operand(Op::name, error);
  }
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/function.ipp>
#endif
