// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/node_index.hpp>
#include <lockstep/autograd/engine/pass_graph.hpp>
#include <lockstep/autograd/engine/pass_vector.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void PassGraph::add_root(Edge edge, Tensor gradient) {
  roots_.push_back({std::move(edge), std::move(gradient), {}});
}

LOCKSTEP_INLINE void PassGraph::build(std::span<const Node* const> wanted) {
  PassVector<Step> path(states_.get_allocator());
  std::vector<std::size_t> finished;
  const bool all = wanted.empty();
  states_.reserve(kUsualNodes);
  targets_.reserve(2 * kUsualNodes);
  path.reserve(kUsualNodes);
  for (Root& root : roots_) {
    root.target.to = visit(*root.edge.node, path);
    walk(path, all ? nullptr : &finished);
  }
  assign_arrivals();
  if (all) {
    for (NodeState& state : states_) state.needed = state.applied = true;
  } else {
    mark_needed(wanted, finished);
  }
}

LOCKSTEP_INLINE std::span<const PassGraph::Target> PassGraph::targets(const NodeState& from) const {
  return std::span(targets_).subspan(from.first_target, from.node->next_edges.size());
}

LOCKSTEP_INLINE std::span<PassGraph::Arrival> PassGraph::arrivals(const NodeState& at) {
  return std::span(arrivals_).subspan(at.first_arrival, at.end_arrival - at.first_arrival);
}

LOCKSTEP_INLINE PassGraph::NodeState* PassGraph::bring(const Target& target, Tensor&& gradient,
                                                       const Stream& stream) {
  NodeState& state = states_[target.to];
  if (gradient.defined()) {
    Arrival& arrival = arrivals_[target.arrival];
    arrival.gradient = std::move(gradient);
    arrival.stream = stream;
    state.reached = true;
  }
  return --state.waiting == 0 ? &state : nullptr;
}

LOCKSTEP_INLINE std::size_t PassGraph::visit(Node& node, PassVector<Step>& path) {
  const std::size_t number = index_.add(&node, states_.size());
  if (number == states_.size()) {
    states_.push_back({.node = &node, .first_target = targets_.size()});
    targets_.resize(targets_.size() + node.next_edges.size());
    path.push_back({number, 0});
  }
  ++states_[number].waiting;
  return number;
}

LOCKSTEP_INLINE void PassGraph::walk(PassVector<Step>& path, std::vector<std::size_t>* finished) {
  while (!path.empty()) {
    Step& step = path.back();
    const NodeState& state = states_[step.number];
    if (step.edge == state.node->next_edges.size()) {
      if (finished) finished->push_back(step.number);
      path.pop_back();
      continue;
    }
    const std::size_t target = state.first_target + step.edge;
    Node* const child = state.node->next_edges[step.edge++].node.get();
    if (!child) continue;
    const std::size_t number = visit(*child, path);
    targets_[target].to = number;
  }
}

LOCKSTEP_INLINE void PassGraph::assign_arrivals() {
  std::size_t count = 0;
  for (NodeState& state : states_) {
    state.first_arrival = state.end_arrival = count;
    count += state.waiting;
  }
  arrivals_.resize(count);
  for (Root& root : roots_) assign_arrival(root.target, root.edge);
  std::size_t target = 0;
  for (const NodeState& state : states_) {
    for (const Edge& edge : state.node->next_edges) assign_arrival(targets_[target++], edge);
  }
}

LOCKSTEP_INLINE void PassGraph::assign_arrival(Target& target, const Edge& edge) {
  if (target.to == NodeIndex::kNone) return;
  target.arrival = states_[target.to].end_arrival++;
  arrivals_[target.arrival].input_nr = edge.input_nr;
}

LOCKSTEP_INLINE void PassGraph::mark_needed(std::span<const Node* const> wanted,
                                            const std::vector<std::size_t>& finished) {
  for (const Node* node : wanted) {
    const std::size_t known = index_.find(node);
    if (known != NodeIndex::kNone) states_[known].needed = true;
  }
  for (const std::size_t number : finished) {
    NodeState& state = states_[number];
    for (const Target& target : targets(state)) {
      if (target.to != NodeIndex::kNone && states_[target.to].needed) state.applied = true;
    }
    if (state.applied) state.needed = true;
  }
}

}  // namespace lockstep::detail
