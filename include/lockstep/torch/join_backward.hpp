// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/torch/node.hpp>
#include <lockstep/torch/parallel_backward.hpp>
#include <lockstep/torch/replica_set.hpp>
#include <lockstep/torch/tensor_traits.hpp>

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

// Calls `visit(tensor)` for LibTorch's tensors in a nested value that require grad.
template <class T, class Visit>
void for_each_recorded(T& value, const Visit& visit) {
  const auto look = [&](auto& leaf, const lockstep::detail::nested::Path&) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) {
      if (leaf.requires_grad()) visit(leaf);
    }
  };
  lockstep::detail::nested::for_each_leaf(value, lockstep::detail::nested::Path(""), look);
}

// Makes the replicas' backwards run concurrently on CPUs, where LibTorch would run them one after
// another: replaces the tensors in `outputs` by results of a ParallelBackward. If that is not
// possible nothing changes; the gradients are the same.
template <class Output, class Arguments>
void join_backward(std::vector<Output>& outputs, const std::vector<Arguments>& arguments,
                   const ReplicaSet& replicas) {
  if (!at::GradMode::is_enabled()) return;
  JoinPlan plan;
  std::vector<at::Tensor*> tensors;
  bool on_cpu = true;
  std::size_t recorded = 0;
  for (Output& output : outputs) {
    GraphPart& part = plan.parts.emplace_back();
    for_each_recorded(output, [&](at::Tensor& tensor) {
      part.roots.push_back(autograd::impl::gradient_edge(tensor));
      part.inputs.push_back(tensors.size());
      tensors.push_back(&tensor);
      on_cpu = on_cpu && tensor.is_cpu();
    });
    recorded += part.roots.empty() ? 0 : 1;
  }
  if (recorded < 2 || !on_cpu) return;

  GraphEnds ends;
  for (const auto& [node, k] : replicas.ends()) ends.add_node(node, k);
  autograd::edge_list candidates = replicas.edges();
  for (const Arguments& argument : arguments) {
    for_each_recorded(argument, [&candidates](const at::Tensor& tensor) {
      candidates.push_back(autograd::impl::gradient_edge(tensor));
    });
  }
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    if (candidates[k].is_valid()) ends.add_edge(candidates[k], k);
  }
  if (!find_ends(plan, ends, candidates)) return;

  const auto node = make_node<ParallelBackward>(std::move(plan.parts), std::move(plan.next));
  for (at::Tensor* const tensor : tensors) {
    const std::uint32_t input = node->add_input_metadata(*tensor);
    *tensor = tensor->detach();
    autograd::impl::set_gradient_edge(*tensor, {node, input});
  }
}

}  // namespace lockstep::libtorch::detail
