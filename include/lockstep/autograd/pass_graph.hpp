// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/node_index.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The part of a graph that a backward pass goes through: what its roots reach, and a place for each
// gradient that comes along an edge.
//
// The nodes are numbered by a depth-first walk from the roots. The gradients that come to a node
// lie side by side: first the roots' own, then in the order of the nodes that they come from,
// whenever they come.
//
// Threads: built by one thread, which other threads come after. Then the places are constant, and
// the pass says who may use what is at them.
class PassGraph {
 public:
  // An edge, or what leads to a root.
  struct Way {
    std::size_t to = NodeIndex::kNone;  // the node's number; none for an edge to nowhere
    std::size_t arrival = 0;
  };
  // A gradient at an input of a node.
  struct Arrival {
    std::size_t input_nr = 0;
    Tensor gradient;               // undefined until it has come, or if it is zero
    std::optional<Stream> stream;  // where it was computed
  };
  struct NodeState {
    Node* node;  // the roots own it
    std::size_t first_way = 0;
    std::size_t first_arrival = 0;
    std::size_t end_arrival = 0;
    std::size_t waiting = 0;  // how many edges have not brought their gradient yet
    bool reached = false;     // by a gradient
    bool needed = false;   // something asked for is reached through it, or is the gradient it gets
    bool applied = false;  // something asked for lies beyond it
    // For the threads that run the nodes.
    std::size_t lane = 0;
    NodeState* next_ready = nullptr;
  };
  struct Root {
    Edge edge;
    Tensor gradient;
    Way way;
  };

  // With memory from `memory`, which outlives it and is used until it is built.
  explicit PassGraph(std::pmr::memory_resource* memory)
      : roots_(memory), states_(memory), ways_(memory), arrivals_(memory), index_(memory) {}

  // With a node at the edge.
  void add_root(Edge edge, Tensor gradient) {
    roots_.push_back({std::move(edge), std::move(gradient), {}});
  }

  // What the gradients of the nodes in `wanted` take, or all if there are none there, is needed.
  void build(std::span<const Node* const> wanted) {
    std::pmr::vector<Step> path(states_.get_allocator());
    std::vector<std::size_t> finished;
    const bool all = wanted.empty();
    states_.reserve(kUsualNodes);
    ways_.reserve(2 * kUsualNodes);
    path.reserve(kUsualNodes);
    for (Root& root : roots_) {
      root.way.to = visit(*root.edge.node, path);
      walk(path, all ? nullptr : &finished);
    }
    lay_out();
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
  // Those of the node's edges.
  std::span<const Way> ways(const NodeState& from) const {
    return std::span(ways_).subspan(from.first_way, from.node->next_edges.size());
  }
  std::span<Arrival> arrivals(const NodeState& at) {
    return std::span(arrivals_).subspan(at.first_arrival, at.end_arrival - at.first_arrival);
  }

  // A gradient goes its way, or none does. Returns the node there if that waits for nothing more.
  NodeState* bring(const Way& way, Tensor&& gradient, const Stream& stream) {
    NodeState& state = states_[way.to];
    if (gradient.defined()) {
      Arrival& arrival = arrivals_[way.arrival];
      arrival.gradient = std::move(gradient);
      arrival.stream = stream;
      state.reached = true;
    }
    return --state.waiting == 0 ? &state : nullptr;
  }

 private:
  // Of a walk: a node, and which of its edges comes next.
  struct Step {
    std::size_t number;
    std::size_t edge;
  };

  // An edge leads to the node, whose number is returned. If it is new, the walk goes on there.
  std::size_t visit(Node& node, std::pmr::vector<Step>& path) {
    const std::size_t number = index_.add(&node, states_.size());
    if (number == states_.size()) {
      states_.push_back({.node = &node, .first_way = ways_.size()});
      ways_.resize(ways_.size() + node.next_edges.size());
      path.push_back({number, 0});
    }
    ++states_[number].waiting;
    return number;
  }

  // Iterative, since a graph can be as deep as the program is long. Lists the nodes as they are
  // finished where there is a list: children before parents.
  void walk(std::pmr::vector<Step>& path, std::vector<std::size_t>* finished) {
    while (!path.empty()) {
      Step& step = path.back();
      const NodeState& state = states_[step.number];
      if (step.edge == state.node->next_edges.size()) {
        if (finished) finished->push_back(step.number);
        path.pop_back();
        continue;
      }
      const std::size_t way = state.first_way + step.edge;
      Node* const child = state.node->next_edges[step.edge++].node.get();
      if (!child) continue;
      const std::size_t number = visit(*child, path);
      ways_[way].to = number;
    }
  }

  // Gives each gradient that is to come its place.
  void lay_out() {
    std::size_t count = 0;
    for (NodeState& state : states_) {
      state.first_arrival = state.end_arrival = count;
      count += state.waiting;
    }
    arrivals_.resize(count);
    for (Root& root : roots_) place(root.way, root.edge);
    std::size_t way = 0;
    for (const NodeState& state : states_) {
      for (const Edge& edge : state.node->next_edges) place(ways_[way++], edge);
    }
  }
  void place(Way& way, const Edge& edge) {
    if (way.to == NodeIndex::kNone) return;
    way.arrival = states_[way.to].end_arrival++;
    arrivals_[way.arrival].input_nr = edge.input_nr;
  }

  void mark_needed(std::span<const Node* const> wanted, const std::vector<std::size_t>& finished) {
    for (const Node* node : wanted) {
      const std::size_t known = index_.find(node);
      if (known != NodeIndex::kNone) states_[known].needed = true;
    }
    for (const std::size_t number : finished) {
      NodeState& state = states_[number];
      for (const Way& way : ways(state)) {
        if (way.to != NodeIndex::kNone && states_[way.to].needed) state.applied = true;
      }
      if (state.applied) state.needed = true;
    }
  }

  // The larger part of such a graph's pass would be growing one by one.
  static constexpr std::size_t kUsualNodes = 8;

  std::pmr::vector<Root> roots_;
  std::pmr::vector<NodeState> states_;
  std::pmr::vector<Way> ways_;  // those of one node side by side
  std::pmr::vector<Arrival> arrivals_;
  NodeIndex index_;
};

}  // namespace lockstep::detail
