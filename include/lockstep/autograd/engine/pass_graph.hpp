// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/node_index.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The part of a graph that a backward pass goes through: the nodes that its roots reach, and an
// Arrival for each gradient that comes along an edge.
//
// The arrivals at a node lie side by side, in an order that does not depend on when they come:
// first the roots' own, then the others in a fixed order of the nodes that they come from. If any
// node sums on arrival, that is the order in which nodes run in a single lane.
//
// Threads: one thread builds it before others use it. From then on the targets are constant;
// GraphTask says which thread may use the gradients.
class PassGraph {
 public:
  // Where the gradient of an edge or a root goes.
  struct Target {
    std::size_t to = NodeIndex::kNone;  // the node's number; none for an edge to nowhere
    std::size_t arrival = 0;
  };
  // A gradient at an input of a node.
  struct Arrival {
    std::size_t input_nr = 0;
    Tensor gradient;               // undefined until it has come, and if it is zero
    std::optional<Stream> stream;  // where it was computed
    bool has_come = false;
  };
  struct NodeState {
    Node* node;  // the roots own it
    std::size_t first_target = 0;
    std::size_t first_arrival = 0;
    std::size_t end_arrival = 0;
    std::size_t waiting = 0;       // edges that have not delivered yet
    bool reached = false;          // by a gradient
    bool needed = false;           // leads to or takes a captured gradient, or none is captured
    bool applied = false;          // leads to a captured gradient, or none is captured
    bool sums_on_arrival = false;  // adds its gradients as they come
    bool owns_sum = false;         // their sum so far is a tensor that nobody else has
    std::size_t next_to_sum = 0;   // the next arrival to add
    // For the threads that run the nodes.
    std::size_t lane = 0;
    NodeState* next_ready = nullptr;
  };
  struct Root {
    Edge edge;
    Tensor gradient;
    Target target;
  };

  // `memory` must outlive this object. Nothing is taken from it once the graph is built.
  explicit PassGraph(std::pmr::memory_resource* memory)
      : roots_(memory), states_(memory), targets_(memory), arrivals_(memory), index_(memory) {}

  // Adds a root; `edge` has a node.
  void add_root(Edge edge, Tensor gradient) {
    roots_.push_back({std::move(edge), std::move(gradient), {}});
  }

  // Builds the graph and marks the nodes needed for the gradients of the nodes in `wanted`, or all
  // if `wanted` is empty.
  void build(std::span<const Node* const> wanted) {
    std::pmr::vector<Step> path(states_.get_allocator());
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

  bool contains(const Node* node) const { return index_.find(node) != NodeIndex::kNone; }
  std::span<Root> roots() { return roots_; }
  std::span<NodeState> states() { return states_; }
  std::span<const NodeState> states() const { return states_; }
  std::span<const Target> targets(const NodeState& from) const {
    return std::span(targets_).subspan(from.first_target, from.node->next_edges.size());
  }
  std::span<Arrival> arrivals(const NodeState& at) {
    return std::span(arrivals_).subspan(at.first_arrival, at.end_arrival - at.first_arrival);
  }

  bool any_sums_on_arrival() const { return any_sums_on_arrival_; }
  NodeState& node_at(const Target& target) { return states_[target.to]; }

  // Stores a gradient, which may be undefined, at its target. Returns the node there if it was the
  // last one missing.
  NodeState* deliver(const Target& target, Tensor&& gradient, const Stream& stream) {
    store(target, std::move(gradient), stream);
    NodeState& state = states_[target.to];
    return --state.waiting == 0 ? &state : nullptr;
  }
  // Stores a gradient without counting it: a `deliver` of an undefined one does that.
  void store(const Target& target, Tensor&& gradient, const Stream& stream) {
    Arrival& arrival = arrivals_[target.arrival];
    arrival.has_come = true;
    if (!gradient.defined()) return;
    arrival.gradient = std::move(gradient);
    arrival.stream = stream;
    states_[target.to].reached = true;
  }

  // Calls `add(first, part)`, which returns whether it has added, for the node's gradients that
  // have come, in order, up to the first missing one.
  template <class Add>
  void sum_arrivals(NodeState& state, const Add& add) {
    Arrival& first = arrivals_[state.first_arrival];
    for (; state.next_to_sum < state.end_arrival; ++state.next_to_sum) {
      Arrival& part = arrivals_[state.next_to_sum];
      if (!part.has_come) return;
      if (&part == &first || !part.gradient.defined()) continue;
      if (!first.gradient.defined()) {
        std::swap(first, part);
      } else if (!add(first, part)) {
        return;
      }
    }
  }

 private:
  // A step of a walk: a node, and the next of its edges.
  struct Step {
    std::size_t number;
    std::size_t edge;
  };

  // Counts an edge that leads to the node and returns the node's number. Appends a new node to
  // `path`.
  std::size_t visit(Node& node, std::pmr::vector<Step>& path) {
    const std::size_t number = index_.add(&node, states_.size());
    if (number == states_.size()) {
      states_.push_back({.node = &node, .first_target = targets_.size()});
      targets_.resize(targets_.size() + node.next_edges.size());
      path.push_back({number, 0});
    }
    ++states_[number].waiting;
    return number;
  }

  // Iterative, since a graph can be as deep as the program runs long. Lists the nodes in
  // `finished`, if given, as the walk leaves them: children before parents.
  void walk(std::pmr::vector<Step>& path, std::vector<std::size_t>* finished) {
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

  // Gives each target the arrival where its gradient will lie.
  void assign_arrivals() {
    std::size_t count = 0;
    for (NodeState& state : states_) {
      state.first_arrival = state.end_arrival = state.next_to_sum = count;
      count += state.waiting;
      state.sums_on_arrival = state.waiting > 2 && state.node->num_inputs() == 1;
      any_sums_on_arrival_ = any_sums_on_arrival_ || state.sums_on_arrival;
    }
    arrivals_.resize(count);
    for (Root& root : roots_) assign_arrival(root.target, root.edge);
    if (any_sums_on_arrival_) {
      assign_arrivals_as_nodes_run();
    } else {
      for (const NodeState& state : states_) assign_arrivals_from(state);
    }
  }
  // A node runs when all its gradients have come; of several ready ones, the last to become ready.
  void assign_arrivals_as_nodes_run() {
    std::pmr::vector<std::size_t> waiting(states_.get_allocator());
    std::pmr::vector<std::size_t> ready(states_.get_allocator());
    for (const NodeState& state : states_) waiting.push_back(state.waiting);
    const auto arrive = [&](const Target& target) {
      if (target.to != NodeIndex::kNone && --waiting[target.to] == 0) ready.push_back(target.to);
    };
    for (const Root& root : roots_) arrive(root.target);
    while (!ready.empty()) {
      const NodeState& state = states_[ready.back()];
      ready.pop_back();
      assign_arrivals_from(state);
      for (const Target& target : targets(state)) arrive(target);
    }
  }
  void assign_arrivals_from(const NodeState& state) {
    std::size_t target = state.first_target;
    for (const Edge& edge : state.node->next_edges) assign_arrival(targets_[target++], edge);
  }
  void assign_arrival(Target& target, const Edge& edge) {
    if (target.to == NodeIndex::kNone) return;
    target.arrival = states_[target.to].end_arrival++;
    arrivals_[target.arrival].input_nr = edge.input_nr;
  }

  void mark_needed(std::span<const Node* const> wanted, const std::vector<std::size_t>& finished) {
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
      if (!state.needed) state.sums_on_arrival = false;
    }
  }

  // Reserved beforehand, since a pass over a small graph would mostly grow its vectors.
  static constexpr std::size_t kUsualNodes = 8;

  std::pmr::vector<Root> roots_;
  std::pmr::vector<NodeState> states_;
  std::pmr::vector<Target> targets_;  // those of one node side by side
  std::pmr::vector<Arrival> arrivals_;
  NodeIndex index_;
  bool any_sums_on_arrival_ = false;
};

}  // namespace lockstep::detail
