// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/backward_error.hpp>
#include <lockstep/autograd/backward_pass.hpp>
#include <lockstep/autograd/lane_workers.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/pass_graph.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <memory_resource>
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
  GraphTask(bool retain_graph, bool create_graph);

  // Asks for the gradient that reaches `edge`; returns a number for `captured`. With any capture,
  // only what leads there is run, and no leaf accumulates.
  std::size_t capture(const Edge& edge);
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // Where the pass starts: at an edge with a node, with a gradient of the size of the tensor there.
  void add_root(Edge edge, Tensor gradient);

  void run();

 private:
  LOCKSTEP_INLINE bool leads_to(const Tensor& leaf) const override;
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
    void enter(std::size_t lane);

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
    void run(NodeState& state) {
      try {
        task.execute(state);
      } catch (...) {
        rethrow_from(*state.node);
      }
    }
    void finish(NodeState& state) { task.deliver(state); }
    GraphTask& task;
  };

  std::size_t lane_of(Device device);

  void add_lane(Device device);

  // Makes the caller's streams wait for all others that nodes have run on, so that the caller may
  // use what they have left there: gradients of leaves, and captured ones.
  void join_streams() const;

  // With the workers' lock, or before they run.
  void bring(const PassGraph::Way& way, Tensor&& gradient, const Stream& stream);

  void execute(NodeState& state);

  static void order_after(const Stream& reader, const PassGraph::Arrival& part);

  // One gradient for each input of the node, added up in the order of the nodes they come from.
  void collect(NodeState& state, std::vector<Tensor>& sums);

  // With the workers' lock, by the thread that has run the node.
  void deliver(NodeState& from);

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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/graph_task.ipp>
#endif
