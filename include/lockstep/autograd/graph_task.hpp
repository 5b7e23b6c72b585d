// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/backward_pass.hpp>
#include <lockstep/autograd/lane_workers.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/node_index.hpp>
#include <lockstep/autograd/pass_graph.hpp>
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
#include <span>
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
// the order of the nodes that they come from, and those are numbered by a walk of the graph
// (PassGraph).
//
// Threads: the graph and the lanes are built by the caller before other threads come and are
// constant from then on. A NodeState and the arrivals at it are guarded by the LaneWorkers' mutex
// until the last gradient has come; then they belong to the thread that runs the node, as the list
// of gradients of the node's lane does until they are delivered.
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
    note_capture();
    return captures_.size() - 1;
  }
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // Where the pass starts: at an edge with a node, with a gradient of the size of the tensor there.
  void add_root(Edge edge, Tensor gradient) {
    graph_.add_root(std::move(edge), std::move(gradient));
  }

  void run() {
    const profile::RecordFunction range("backward");
    std::vector<const Node*> wanted;
    for (const Capture& capture : captures_) wanted.push_back(capture.edge.node.get());
    graph_.build(wanted);
    for (NodeState& state : graph_.states()) state.lane = lane_of(state.node->stream().device());
    workers_.set_lanes(lanes_.size());
    for (PassGraph::Root& root : graph_.roots()) {
      const Stream stream = current_stream(root.gradient.device());
      bring(root.way, std::move(root.gradient), stream);
    }
    // A thread's passes usually take equally long.
    static constinit thread_local Pace pace;
    workers_.run(graph_.states().size(), pace);
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
    return graph_.contains(accumulator.get());
  }

 private:
  bool is_last_node() const override { return workers_.is_last(); }

  using NodeState = PassGraph::NodeState;
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

  // Makes the caller's streams wait for all others that nodes have run on, so that the caller may
  // use what they have left there: gradients of leaves, and captured ones.
  void join_streams() const {
    std::vector<Stream> joined;
    for (const NodeState& state : graph_.states()) {
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

  // With the workers' lock, or before they run.
  void bring(const PassGraph::Way& way, Tensor&& gradient, const Stream& stream) {
    NodeState* const ready = graph_.bring(way, std::move(gradient), stream);
    if (ready) workers_.put(ready->lane, *ready);
  }

  void execute(NodeState& state) {
    Node& node = *state.node;
    if (state.needed && state.reached) {
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

  static void order_after(const Stream& reader, const PassGraph::Arrival& part) {
    if (*part.stream == reader) return;
    reader.wait_stream(*part.stream);
    part.gradient.record_stream(reader);
  }

  // One gradient for each input of the node, added up in the order of the nodes they come from.
  void collect(NodeState& state, std::vector<Tensor>& sums) {
    const Stream& stream = state.node->stream();
    sums.resize(state.node->num_inputs());
    for (PassGraph::Arrival& part : graph_.arrivals(state)) {
      if (!part.gradient.defined()) continue;
      order_after(stream, part);
      // A gradient on another device is read through that device's current stream.
      const Device device = part.gradient.device();
      if (device != stream.device()) order_after(current_stream(device), part);
      Tensor& sum = sums[part.input_nr];
      if (sum.defined()) {
        sum = sum_gradients(sum, part.gradient);
        part.gradient = Tensor();
      } else {
        sum = std::move(part.gradient);
      }
    }
  }

  // With the workers' lock, by the thread that has run the node.
  void deliver(NodeState& from) {
    std::vector<Tensor>& results = lanes_[from.lane].gradients;
    const std::span<const PassGraph::Way> ways = graph_.ways(from);
    results.resize(ways.size());  // where nothing was to be computed there are none
    const Stream& own = from.node->stream();
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (ways[i].to == NodeIndex::kNone) continue;
      Tensor& gradient = results[i];
      // What a node puts on another device was issued to that device's current stream.
      const bool elsewhere = gradient.defined() && gradient.device() != own.device();
      const Stream stream = elsewhere ? current_stream(gradient.device()) : own;
      bring(ways[i], std::move(gradient), stream);
    }
    results.clear();
  }

  static constexpr std::size_t kUsualLanes = 4;
  static constexpr std::size_t kUsualGradients = 8;

  const bool retain_graph_;
  const bool create_graph_;
  // For all that is as large as the graph; what a small one needs is part of this object.
  alignas(std::max_align_t) std::array<std::byte, 4096> first_memory_;
  std::pmr::monotonic_buffer_resource memory_{first_memory_.data(), first_memory_.size()};
  PassGraph graph_{&memory_};
  std::pmr::vector<Lane> lanes_{&memory_};
  LaneJob job_{*this};
  LaneWorkers<LaneJob> workers_{job_, &memory_};
  std::vector<Capture> captures_;          // each written by the lane of its node
  std::atomic<bool> side_streams_{false};  // some node's was not the current one of its lane
};

}  // namespace lockstep::detail
