// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/engine/graph_task.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::detail {

// For losses that DataParallel gathers from its replicas, the message says how to combine them.
[[noreturn, gnu::cold]] inline void fail_no_scalar(const Tensor& tensor) {
  const bool gathered = tensor.dim() == 1 && tensor.grad_fn() &&
                        std::string_view(tensor.grad_fn()->name()) == "Gather";
  fail<AutogradError>(
      "grad can be implicitly created only for scalar outputs; backward of a tensor of shape ",
      tensor.sizes(), " needs a gradient of that shape",
      gathered ? ". If these are the losses of DataParallel's replicas, its option "
                 ".scalar_outputs = ls::Reduction::mean makes one of them"
               : "");
}

// Adds the tensors where backward starts, with their gradients; a scalar without one gets 1.
inline void add_roots(GraphTask& task, std::span<const Tensor> tensors,
                      std::span<const Tensor> gradients) {
  check<ValueError>(gradients.empty() || gradients.size() == tensors.size(),
                    "backward: ", gradients.size(), " gradients were given for ", tensors.size(),
                    " tensors");
  const InferenceModeGuard normal(false);  // what is made here may become the grad of a leaf
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    check<AutogradError>(tensor.defined(), "backward: tensor ", i, " is undefined");
    check<AutogradError>(tensor.requires_grad(), "backward: tensor ", i,
                         " does not require grad and has no grad_fn: it was detached, or computed "
                         "under a NoGradGuard or from nothing that requires grad");
    Tensor gradient = gradients.empty() ? Tensor() : gradients[i];
    if (!gradient.defined()) {
      if (tensor.numel() != 1) fail_no_scalar(tensor);
      gradient = ones(tensor.sizes(), tensor.options());
    }
    check_gradient("backward: a gradient", gradient, "was given for a tensor", tensor);
    task.add_root(gradient_edge(tensor), std::move(gradient));
  }
}

inline void run_backward(std::span<const Tensor> tensors, std::span<const Tensor> gradients,
                         bool retain_graph, bool create_graph) {
  GraphTask task(retain_graph, create_graph);
  add_roots(task, tensors, gradients);
  task.run();
}

}  // namespace lockstep::detail

namespace lockstep::autograd {

LOCKSTEP_INLINE void backward(const std::vector<Tensor>& tensors,
                              const std::vector<Tensor>& gradients,
                              std::optional<bool> retain_graph, bool create_graph) {
  detail::run_backward(tensors, gradients, retain_graph.value_or(create_graph), create_graph);
}

LOCKSTEP_INLINE std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                         const std::vector<Tensor>& inputs,
                                         const std::vector<Tensor>& grad_outputs,
                                         std::optional<bool> retain_graph, bool create_graph,
                                         bool allow_unused) {
  detail::GraphTask task(retain_graph.value_or(create_graph), create_graph);
  detail::add_roots(task, outputs, grad_outputs);
  check<ValueError>(!inputs.empty(), "grad: expected at least one input");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check<AutogradError>(inputs[i].defined() && inputs[i].requires_grad(), "grad: input ", i,
                         " does not require grad");
    task.capture(detail::gradient_edge(inputs[i]));
  }
  task.run();
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    results.push_back(task.captured(i));
    check<AutogradError>(allow_unused || results[i].defined(),
                         "grad: the outputs do not depend on "
                         "input ",
                         i, "; pass allow_unused = true for an undefined gradient");
  }
  return results;
}

}  // namespace lockstep::autograd

namespace lockstep {

LOCKSTEP_INLINE void Tensor::backward(const Tensor& gradient, bool retain_graph,
                                      bool create_graph) const {
  detail::run_backward({this, 1}, {&gradient, gradient.defined() ? 1U : 0U},
                       retain_graph || create_graph, create_graph);
}

LOCKSTEP_INLINE void Tensor::retain_grad() const {
  check<AutogradError>(requires_grad(),
                       "can't retain_grad on a tensor that doesn't require gradient");
  if (is_leaf()) return;
  const auto retain = [variable = std::weak_ptr(impl_)](const Tensor& gradient) {
    const Tensor tensor(variable.lock());
    if (!tensor.defined()) return Tensor();
    const Tensor total = detail::add_to_grad(tensor, gradient);
    // The caller reads it on a stream that waits for this one.
    autograd::queue_callback([total] { total.record_stream(current_stream(total.device())); });
    return Tensor();
  };
  (void)detail::add_gradient_hook(*this, retain, true);
}

}  // namespace lockstep
