// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/node_index.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
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
  void add_root(Edge edge, Tensor gradient);

  // What the gradients of the nodes in `wanted` take, or all if there are none there, is needed.
  void build(std::span<const Node* const> wanted);

  bool contains(const Node* node) const { return index_.find(node) != NodeIndex::kNone; }
  std::span<Root> roots() { return roots_; }
  std::span<NodeState> states() { return states_; }
  std::span<const NodeState> states() const { return states_; }
  // Those of the node's edges.
  std::span<const Way> ways(const NodeState& from) const;
  std::span<Arrival> arrivals(const NodeState& at);

  // A gradient goes its way, or none does. Returns the node there if that waits for nothing more.
  NodeState* bring(const Way& way, Tensor&& gradient, const Stream& stream);

 private:
  // Of a walk: a node, and which of its edges comes next.
  struct Step {
    std::size_t number;
    std::size_t edge;
  };

  // An edge leads to the node, whose number is returned. If it is new, the walk goes on there.
  std::size_t visit(Node& node, std::pmr::vector<Step>& path);

  // Iterative, since a graph can be as deep as the program is long. Lists the nodes as they are
  // finished where there is a list: children before parents.
  void walk(std::pmr::vector<Step>& path, std::vector<std::size_t>* finished);

  // Gives each gradient that is to come its place.
  void lay_out();
  void place(Way& way, const Edge& edge);

  void mark_needed(std::span<const Node* const> wanted, const std::vector<std::size_t>& finished);

  // The larger part of such a graph's pass would be growing one by one.
  static constexpr std::size_t kUsualNodes = 8;

  std::pmr::vector<Root> roots_;
  std::pmr::vector<NodeState> states_;
  std::pmr::vector<Way> ways_;  // those of one node side by side
  std::pmr::vector<Arrival> arrivals_;
  NodeIndex index_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/pass_graph.ipp>
#endif
