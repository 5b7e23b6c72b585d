// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/backward_pass.hpp>
#include <lockstep/autograd/lane_workers.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/node_index.hpp>
#include <lockstep/autograd/sum_gradients.hpp>
#include <lockstep/backend/pace.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// One backward pass over the part of a graph that its roots reach.
//
// The nodes are divided into lanes, one for each device, and one node of a lane runs at a time, so
// that the devices run backward at the same time where they have enough to do (LaneWorkers). (A
// node that moves gradients to other devices, as Gather's does, issues to their streams as well.) A
// pass with a single lane stays on the calling thread. Nodes of plain host memory go with the first
// lane.
//
// The result does not depend on timing: where several gradients meet in one place they are added in
// the order of the nodes that they come from, and those are numbered by a walk of the graph.
//
// Threads: the graph and the lanes are built by the caller before other threads come and are
// constant from then on. A NodeState is guarded by the LaneWorkers' mutex until its last gradient
// has come; then it belongs to the thread that runs the node, as the list of gradients of the
// node's lane does until they are delivered. The memory is the caller's before and after the lanes
// run, and guarded by the same mutex while they do.
class GraphTask final : public BackwardPass {
 public:
  GraphTask(bool retain_graph, bool create_graph)
      : BackwardPass(current_backward_pass),
        retain_graph_(retain_graph),
        create_graph_(create_graph) {}

  // Asks for the gradient that reaches `edge`; returns a number for `captured`. With any capture,
  // only what leads there is run, and no leaf accumulates.
  std::size_t capture(const Edge& edge) {
    captures_.push_back({edge, {}});
    return captures_.size() - 1;
  }
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // The gradients' sizes are those of the roots' tensors.
  void run(const std::vector<Edge>& roots, const std::vector<Tensor>& gradients) {
    const profile::RecordFunction range("backward");
    for (const Edge& root : roots) discover(*root.node);
    mark_needed();
    for (std::size_t i = 0; i < roots.size(); ++i) {
      contribute(*find(roots[i].node.get()), roots[i].input_nr, 0, gradients[i],
                 current_stream(gradients[i].device()));
    }
    for (const Edge& root : roots) settle(*find(root.node.get()));
    // A thread's passes usually take equally long.
    static constinit thread_local Pace pace;
    workers_.run(states_.size(), pace);
    if (side_streams_.load(std::memory_order_relaxed) || !StreamOverrides::empty()) join_streams();
    workers_.rethrow_error();
    if (has_callbacks()) {
      const LaneScope scope(*this);
      run_callbacks();
    }
  }

  bool reaches(const Tensor& leaf) const override {
    std::shared_ptr<Node> accumulator;
    {
      const std::lock_guard lock(leaf.impl()->mutex);
      accumulator = leaf.impl()->accumulator.lock();
    }
    return index_.find(accumulator.get()) != NodeIndex::kNone;
  }

 private:
  bool is_last_node() const override { return workers_.is_last(); }

  struct Contribution {
    std::size_t input_nr;
    std::size_t from;   // number of the node that it comes from, 0 for a root
    std::size_t place;  // in the order of arrival
    Tensor gradient;
    Stream stream;  // where it was computed
  };
  struct NodeState {
    Node* node;  // the roots, which the caller of `run` holds, own it
    std::size_t number = 0;
    std::size_t lane = 0;
    std::size_t waiting = 0;  // how many edges have not brought their gradient yet
    bool needed = false;   // something asked for is reached through it, or is the gradient it gets
    bool applied = false;  // something asked for lies beyond it
    std::pmr::vector<Contribution> gradients;
  };
  struct Lane {
    Device device;
    bool in_timeline = false;       // has a range there
    std::vector<Tensor> gradients;  // of its node that runs: what that gets, then what it leaves
  };
  struct Capture {
    Edge edge;
    Tensor gradient;
  };

  // What holds in every lane, whatever the caller has set: gradients are normal tensors, computed
  // in the dtypes of forward.
  struct LaneScope {
    explicit LaneScope(GraphTask& task) : pass(task), autograd({.grad = task.create_graph_}) {}
    const BackwardPassScope pass;
    const AutogradStateScope autograd;
    const AutocastStateScope autocast{{.enabled = false}};
  };

  // What a thread that works for this pass has set, and in the timeline.
  class ThreadScope {
   public:
    explicit ThreadScope(GraphTask& task) : task_(task), scope_(task) {}
    // Each lane has one range, of the thread that came first, until that thread has left.
    void enter(std::size_t lane) {
      if (!profile::enabled() || std::exchange(task_.lanes_[lane].in_timeline, true)) return;
      (void)ranges_.emplace_back(profile::Literal("backward"), task_.lanes_[lane].device);
    }

   private:
    GraphTask& task_;
    std::list<profile::RecordFunction> ranges_;
    const LaneScope scope_;
  };
  struct LaneJob {
    using Item = NodeState;
    struct Scope : ThreadScope {
      explicit Scope(LaneJob& job) : ThreadScope(job.task) {}
    };
    void run(NodeState& state) { task.execute(state); }
    void finish(NodeState& state) { task.deliver(state); }
    GraphTask& task;
  };

  NodeState* find(const Node* node) { return &states_[index_.find(node)]; }

  // Numbers the nodes from 1 in the order of a depth-first walk, and counts for each how many edges
  // lead to it. Iterative, since a graph can be as deep as the program is long.
  void discover(Node& root) {
    if (index_.find(&root) != NodeIndex::kNone) return;
    std::pmr::vector<std::pair<std::size_t, std::size_t>> path(&memory_);  // a node, its next edge
    path.reserve(kUsualNodes);
    path.emplace_back(add(root), 0);
    while (!path.empty()) {
      const std::size_t place = path.back().first;
      const std::vector<Edge>& edges = states_[place].node->next_edges;
      if (path.back().second == edges.size()) {
        if (!captures_.empty()) finished_.push_back(place);
        path.pop_back();
        continue;
      }
      Node* const child = edges[path.back().second++].node.get();
      if (!child) continue;
      std::size_t known = index_.find(child);
      if (known == NodeIndex::kNone) {
        known = add(*child);
        path.emplace_back(known, 0);
      }
      ++states_[known].waiting;
    }
  }

  std::size_t add(Node& node) {
    const std::size_t place = states_.size();
    if (place == 0) states_.reserve(kUsualNodes);
    states_.push_back({.node = &node,
                       .number = place + 1,
                       .lane = lane_of(node.stream().device()),
                       .gradients = std::pmr::vector<Contribution>(&memory_)});
    index_.add(&node, place);
    return place;
  }

  std::size_t lane_of(Device device) {
    if (lanes_.empty()) add_lane(device);
    if (device.is_host_memory()) return 0;
    if (lanes_[0].device.is_host_memory()) lanes_[0].device = device;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].device == device) return i;
    }
    add_lane(device);
    return lanes_.size() - 1;
  }

  void add_lane(Device device) {
    lanes_.push_back({.device = device, .gradients = {}});
    workers_.add_lane();
  }

  void mark_needed() {
    if (captures_.empty()) {
      for (NodeState& state : states_) state.needed = state.applied = true;
      return;
    }
    for (const Capture& capture : captures_) {
      const std::size_t known = index_.find(capture.edge.node.get());
      if (known != NodeIndex::kNone) states_[known].needed = true;
    }
    for (const std::size_t place : finished_) {  // children before parents
      NodeState& state = states_[place];
      for (const Edge& edge : state.node->next_edges) {
        if (edge.node && find(edge.node.get())->needed) state.applied = true;
      }
      if (state.applied) state.needed = true;
    }
  }

  // A gradient that came; `state` may get more.
  void contribute(NodeState& state, std::size_t input_nr, std::size_t from, Tensor gradient,
                  const Stream& stream) {
    if (!gradient.defined()) return;
    state.gradients.push_back(
        {input_nr, from, state.gradients.size(), std::move(gradient), stream});
  }

  // Makes the caller's streams wait for all others that nodes have run on, so that the caller may
  // use what they have left there: gradients of leaves, and captured ones.
  void join_streams() const {
    std::vector<Stream> joined;
    for (const NodeState& state : states_) {
      const Stream& ran = state.node->stream();
      const Stream mine = current_stream(ran.device());
      if (ran == mine) continue;
      if (std::find(joined.begin(), joined.end(), ran) == joined.end()) {
        mine.wait_stream(ran);
        joined.push_back(ran);
      }
      if (!state.node->is_accumulator()) continue;
      const Tensor left = static_cast<const AccumulateGrad&>(*state.node).variable().grad();
      if (left.defined()) left.record_stream(mine);
    }
    for (const Capture& capture : captures_) {
      if (capture.gradient.defined()) {
        capture.gradient.record_stream(current_stream(capture.gradient.device()));
      }
    }
  }

  // The node is ready to run if it waits for nothing more. With the workers' lock, or before they
  // run.
  void settle(NodeState& state) {
    if (state.waiting > 0) return;
    state.waiting = kReady;
    workers_.put(state.lane, state);
  }

  void execute(NodeState& state) {
    Node& node = *state.node;
    if (state.needed && !state.gradients.empty()) {
      std::optional<StreamGuard> guard;
      if (current_stream(node.stream().device()) != node.stream()) {
        guard.emplace(node.stream());
        side_streams_.store(true, std::memory_order_relaxed);
      }
      std::vector<Tensor>& gradients = lanes_[state.lane].gradients;
      collect(state, gradients);
      for (Capture& capture : captures_) {
        if (capture.edge.node.get() == &node) {
          capture.gradient = gradients[capture.edge.input_nr];
        }
      }
      if (state.applied) {
        node.apply(gradients);
        if (!retain_graph_) node.release_saved();
      } else {
        gradients.clear();
      }
    }
  }

  static void order_after(const Stream& reader, const Contribution& part) {
    if (part.stream == reader) return;
    reader.wait_stream(part.stream);
    part.gradient.record_stream(reader);
  }

  // Stable by the places. Rarely needed, and a heap sort is less to compile than std::stable_sort.
  static void sort_by_origin(std::pmr::vector<Contribution>& gradients) {
    const auto earlier = [](const Contribution& a, const Contribution& b) {
      return a.from != b.from ? a.from < b.from : a.place < b.place;
    };
    std::make_heap(gradients.begin(), gradients.end(), earlier);
    std::sort_heap(gradients.begin(), gradients.end(), earlier);
  }

  // One gradient for each input of the node, added up in the order of the nodes they come from.
  void collect(NodeState& state, std::vector<Tensor>& sums) {
    const Stream& stream = state.node->stream();
    for (const Contribution& part : state.gradients) {
      order_after(stream, part);
      // A gradient on another device is read through that device's current stream.
      const Device device = part.gradient.device();
      if (device != stream.device()) order_after(current_stream(device), part);
    }
    const auto earlier = [](const auto& a, const auto& b) { return a.from < b.from; };
    if (!std::is_sorted(state.gradients.begin(), state.gradients.end(), earlier)) {
      sort_by_origin(state.gradients);
    }
    // The node puts what it computes in their place.
    sums.reserve(std::max(state.node->num_inputs(), state.node->next_edges.size()));
    sums.resize(state.node->num_inputs());
    for (Contribution& part : state.gradients) {
      Tensor& sum = sums[part.input_nr];
      sum = sum.defined() ? sum_gradients(sum, part.gradient) : std::move(part.gradient);
    }
    state.gradients.clear();
  }

  // With the workers' lock, by the thread that has run the node.
  void deliver(NodeState& from) {
    std::vector<Tensor>& results = lanes_[from.lane].gradients;
    results.resize(from.node->next_edges.size());
    const Stream& own = from.node->stream();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Edge& edge = from.node->next_edges[i];
      if (!edge.node) continue;
      NodeState& to = *find(edge.node.get());
      Tensor& gradient = results[i];
      // What a node puts on another device was issued to that device's current stream.
      const bool elsewhere = gradient.defined() && gradient.device() != own.device();
      const Stream stream = elsewhere ? current_stream(gradient.device()) : own;
      contribute(to, edge.input_nr, from.number, std::move(gradient), stream);
      --to.waiting;
      settle(to);
    }
    results.clear();
  }

  // The larger part of such a graph's pass would be growing one by one.
  static constexpr std::size_t kUsualNodes = 8;
  static constexpr std::size_t kReady = static_cast<std::size_t>(-1);

  const bool retain_graph_;
  const bool create_graph_;
  // For all that is as large as the graph; what a small one needs is part of this object.
  alignas(std::max_align_t) std::array<std::byte, 4096> first_memory_;
  std::pmr::monotonic_buffer_resource memory_{first_memory_.data(), first_memory_.size()};
  std::pmr::vector<NodeState> states_{&memory_};  // a node's place here is its number less one
  std::vector<std::size_t> finished_;  // with captures: the places, children before parents
  NodeIndex index_{&memory_};          // the places
  std::pmr::vector<Lane> lanes_{&memory_};
  LaneJob job_{*this};
  LaneWorkers<LaneJob> workers_{job_, &memory_};
  std::vector<Capture> captures_;          // each written by the lane of its node
  std::atomic<bool> side_streams_{false};  // some node's was not the current one of its lane
};

}  // namespace lockstep::detail
