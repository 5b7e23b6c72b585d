// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/engine/lane_workers.hpp>
#include <lockstep/autograd/engine/node_index.hpp>
#include <lockstep/autograd/engine/pass_graph.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

// One backward pass over the part of a graph that its roots reach.
//
// The nodes are divided into lanes, one per device. One node of a lane runs at a time, and lanes
// run at once where that pays (LaneWorkers); a pass with a single lane stays on the calling thread.
// Nodes of plain host memory belong to the first lane. A node that moves gradients to other
// devices, as Gather's does, also issues to their streams.
//
// The result does not depend on timing: the gradients that come to one input of a node are added in
// a fixed order, that of a single lane (PassGraph). If many come to a node with one input from its
// own lane and stream, such as those of a weight used at each step of a sequence, each is added on
// arrival rather than kept.
//
// Threads: the caller builds graph and lanes before other threads come; these are constant from
// then on. The LaneWorkers' mutex guards a NodeState and its arrivals until the last gradient has
// come; then they belong to the thread that runs the node, as do the lane's gradients until they
// are delivered. Where gradients are added on arrival, everything but `waiting` belongs to the
// thread that runs a node of the lane.
class GraphTask final : public BackwardPass {
 public:
  GraphTask(bool retain_graph, bool create_graph)
      : BackwardPass(current_backward_pass),
        retain_graph_(retain_graph),
        create_graph_(create_graph) {}

  // Asks for the gradient that reaches `edge`; captured(n) returns the n-th one asked for. Then
  // only nodes on the way to these run, and no leaf's `grad` changes.
  void capture(const Edge& edge) {
    captures_.push_back({edge, {}});
    note_capture();
  }
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // Adds an edge where the pass starts, with the gradient there.
  void add_root(Edge edge, Tensor gradient) {
    graph_.add_root(std::move(edge), std::move(gradient));
  }

  void run() {
    const profile::RecordFunction range("backward");
    std::vector<const Node*> wanted;
    for (const Capture& capture : captures_) wanted.push_back(capture.edge.node.get());
    graph_.build(wanted);
    for (NodeState& state : graph_.states()) state.lane = lane_of(state.node->stream().device());
    if (lanes_.size() > 1) {
      random_ = random_override();
      if (graph_.any_sums_on_arrival()) stop_sums_across_lanes();
    }
    workers_.set_lanes(lanes_.size());
    for (PassGraph::Root& root : graph_.roots()) {
      const Stream stream = current_stream(root.gradient.device());
      deliver(root.target, std::move(root.gradient), stream);
    }
    // One per thread, since a thread's passes usually take equally long.
    static constinit thread_local Pace pace;
    workers_.run(graph_.states().size(), pace);
    if (side_streams_.load(std::memory_order_relaxed) || !StreamOverrides::empty()) join_streams();
    // Lanes are in the order in which the graph reaches their devices.
    workers_.rethrow_error(
        [this](std::size_t a, std::size_t b) { return lanes_[a].device < lanes_[b].device; });
    if (has_callbacks()) {
      const Scope scope(*this);
      run_callbacks();
    }
  }

 private:
  bool leads_to(const Tensor& leaf) const override {
    std::shared_ptr<Node> accumulator;
    {
      const std::lock_guard lock(leaf.impl()->mutex);
      accumulator = leaf.impl()->accumulator.lock();
    }
    return graph_.contains(accumulator.get());
  }
  bool is_last_node() const override { return workers_.is_last(); }

  using NodeState = PassGraph::NodeState;
  friend LaneWorkers<GraphTask, NodeState>;  // whose Job this is
  struct Lane {
    Device device;
    bool in_timeline = false;       // a thread has opened its range
    std::vector<Tensor> gradients;  // what the running node gets, then what it returns
  };
  struct Capture {
    Edge edge;
    Tensor gradient;
  };

  // The state of a thread that works for this pass: the caller's random numbers, and neither
  // inference mode nor autocast, so that gradients are normal tensors computed in forward's dtypes.
  // Also holds its ranges in the timeline.
  class Scope {
   public:
    explicit Scope(GraphTask& task)
        : task_(task), pass_(task), autograd_({.grad = task.create_graph_}) {
      if (task.random_) random_.emplace(random_override(), task.random_);
    }
    // Opens the lane's range unless a thread has opened it. It ends with this Scope.
    void enter(std::size_t lane) {
      if (!profile::enabled() || std::exchange(task_.lanes_[lane].in_timeline, true)) return;
      (void)ranges_.emplace_back(profile::Literal("backward"), task_.lanes_[lane].device);
    }

   private:
    GraphTask& task_;
    std::list<profile::RecordFunction> ranges_;
    const BackwardPassScope pass_;
    const AutogradStateScope autograd_;
    const ScopedValue<AutocastState> autocast_{autocast_state(), {.enabled = false}};
    std::optional<ScopedValue<std::shared_ptr<RandomNumbers>>> random_;
  };

  void run(NodeState& state) {
    try {
      execute(state);
    } catch (...) {
      rethrow_as([&node = *state.node](const std::exception& error) {
        return str(error.what(), " (in the backward of ", node.name(), " on ",
                   node.stream().device(), ")");
      });
    }
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
    if (lanes_.empty()) lanes_.reserve(kUsualLanes);
    lanes_.push_back({.device = device, .gradients = {}});
    lanes_.back().gradients.reserve(kUsualGradients);
  }

  // Makes the caller's streams wait for all streams that nodes have run on, so that the caller may
  // use the leaves' and the captured gradients.
  void join_streams() const {
    std::vector<Stream> joined;
    for (const NodeState& state : graph_.states()) {
      const Stream& ran = state.node->stream();
      const Stream mine = current_stream(ran.device());
      if (ran == mine) continue;
      if (find(joined, ran) == joined.end()) {
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

  // Delivers a gradient, and queues the node there if it was the last one missing. Called with the
  // workers' lock, or before they run.
  void deliver(const PassGraph::Target& target, Tensor&& gradient, const Stream& stream) {
    NodeState* const ready = graph_.deliver(target, std::move(gradient), stream);
    if (ready) workers_.put(ready->lane, *ready);
  }

  void execute(NodeState& state) {
    if (!state.needed || !state.reached) return;
    Node& node = *state.node;
    std::optional<StreamGuard> guard;
    if (current_stream(node.stream().device()) != node.stream()) {
      guard.emplace(node.stream());
      side_streams_.store(true, std::memory_order_relaxed);
    }
    std::vector<Tensor>& gradients = lanes_[state.lane].gradients;
    collect(state, gradients);
    if (node.has_gradient_hooks.load(std::memory_order_relaxed)) [[unlikely]] {
      // A hook may remove itself. A pass that captures leaves `grad` alone.
      if (const auto hooks = hooks_of(node)) hooks->call(gradients, captures_.empty());
    }
    if (!captures_.empty() && node.is_accumulator()) {  // that is not applied
      static_cast<const AccumulateGrad&>(node).receive(gradients);
    }
    for (Capture& capture : captures_) {
      if (capture.edge.node.get() == &node) {
        capture.gradient = gradients[capture.edge.input_nr];
      }
    }
    if (state.applied) {
      node.apply(gradients);
      // Done here, where an error names this node, and before anything is added to the gradients.
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const Edge& next = node.next_edges[i];
        if (next.node && gradients[i].defined()) next.node->fit(next.input_nr, gradients[i]);
      }
      if (!retain_graph_) node.release_saved();
      if (graph_.any_sums_on_arrival() || !captures_.empty()) sum_or_drop(state, gradients);
    } else {
      gradients.clear();
    }
  }

  // Adds those of the node's results that are summed on arrival, and drops those that no captured
  // gradient needs.
  void sum_or_drop(const NodeState& from, std::vector<Tensor>& gradients) {
    const std::span<const PassGraph::Target> targets = graph_.targets(from);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (targets[i].to == NodeIndex::kNone) continue;
      const NodeState& to = graph_.node_at(targets[i]);
      if (!to.needed) gradients[i] = Tensor();
      if (to.sums_on_arrival) sum_on_arrival(targets[i], gradients[i], from.node->stream());
    }
  }

  // Stops summing on arrival at nodes that also get gradients from another lane.
  void stop_sums_across_lanes() {
    for (const NodeState& from : graph_.states()) {
      for (const PassGraph::Target& target : graph_.targets(from)) {
        if (target.to == NodeIndex::kNone) continue;
        NodeState& to = graph_.node_at(target);
        if (to.lane != from.lane) to.sums_on_arrival = false;
      }
    }
  }

  static void order_after(const Stream& reader, const PassGraph::Arrival& part) {
    if (*part.stream == reader) return;
    reader.wait_stream(*part.stream);
    part.gradient.record_stream(reader);
  }

  // Stores a gradient at its target and adds the gradients there that have come, up to the first
  // missing one. Leaves the sum to the node if it needs more than that.
  void sum_on_arrival(const PassGraph::Target& target, Tensor& gradient, const Stream& stream) {
    PassGraph::NodeState& to = graph_.node_at(target);
    if (to.node->stream() != stream) {
      to.sums_on_arrival = false;
      return;
    }
    graph_.store(target, std::move(gradient), stream);
    graph_.sum_arrivals(to, [&](PassGraph::Arrival& sum, PassGraph::Arrival& part) {
      const Tensor& a = sum.gradient;
      const Tensor& b = part.gradient;
      to.sums_on_arrival = a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
                           a.device() == stream.device() && b.device() == stream.device();
      if (!to.sums_on_arrival) return false;
      order_after(stream, sum);
      order_after(stream, part);
      sum.stream = stream;
      add(sum.gradient, part.gradient, to.owns_sum);
      return true;
    });
  }

  // Adds `part` to `sum`: in place if the pass owns `sum`, otherwise in a new tensor, which it then
  // owns unless that is recorded.
  static void add(Tensor& sum, Tensor& part, bool& own) {
    if (own && !sum.is_sparse() && !part.is_sparse()) {
      check_summable(sum, part);
      add_in_place(sum, part);
    } else {
      sum = sum_gradients(sum, part);
      own = !is_grad_enabled();
    }
    part = Tensor();
  }

  // Sums the gradients for each input of the node, in the order of the nodes that they come from.
  void collect(NodeState& state, std::vector<Tensor>& sums) {
    const Stream& stream = state.node->stream();
    // (Not resize, which is a function call: `sums` is empty and has room.)
    while (sums.size() < state.node->num_inputs()) sums.emplace_back();
    for (PassGraph::Arrival& part : graph_.arrivals(state)) {
      if (!part.gradient.defined()) continue;
      order_after(stream, part);
      // A gradient on another device is read through that device's current stream.
      const Device device = part.gradient.device();
      if (device != stream.device()) order_after(current_stream(device), part);
      Tensor& sum = sums[part.input_nr];
      if (sum.defined()) {
        bool own = state.owns_sum && sums.size() == 1;  // with several inputs it owns none
        add(sum, part.gradient, own);
        state.owns_sum = own;
      } else {
        sum = std::move(part.gradient);
      }
    }
  }

  // Sends the node's results along its edges. Called with the workers' lock by the thread that has
  // run the node.
  void finish(NodeState& from) {
    std::vector<Tensor>& results = lanes_[from.lane].gradients;
    const std::span<const PassGraph::Target> targets = graph_.targets(from);
    if (results.empty()) results.resize(targets.size());  // it was not applied
    const Stream& own = from.node->stream();
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].to == NodeIndex::kNone) continue;
      Tensor& gradient = results[i];
      // A result on another device was computed on that device's current stream.
      const bool elsewhere = gradient.defined() && gradient.device() != own.device();
      const Stream stream = elsewhere ? current_stream(gradient.device()) : own;
      deliver(targets[i], std::move(gradient), stream);
    }
    results.clear();
  }

  static constexpr std::size_t kUsualLanes = 4;
  static constexpr std::size_t kUsualGradients = 8;

  const bool retain_graph_;
  const bool create_graph_;
  std::shared_ptr<RandomNumbers> random_;  // the caller's own, if it has any and helpers may come
  // Memory for everything that grows with the graph; enough for a small graph.
  alignas(std::max_align_t) std::array<std::byte, 4096> first_memory_;
  std::pmr::monotonic_buffer_resource memory_{first_memory_.data(), first_memory_.size()};
  PassGraph graph_{&memory_};
  std::pmr::vector<Lane> lanes_{&memory_};
  LaneWorkers<GraphTask, NodeState> workers_{*this, &memory_};
  std::vector<Capture> captures_;          // each written by its node's lane
  std::atomic<bool> side_streams_{false};  // a node ran on a stream that was not current
};

}  // namespace lockstep::detail
