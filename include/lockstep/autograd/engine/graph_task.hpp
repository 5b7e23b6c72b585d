// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/engine/lane_workers.hpp>
#include <lockstep/autograd/engine/pass_graph.hpp>
#include <lockstep/autograd/engine/pass_vector.hpp>
#include <lockstep/autograd/node.hpp>
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

// Rethrows the exception that is being handled, with the node and its device added to its text.
//
// The type stays the same. So the text of an exception whose type is neither of lockstep/error.hpp
// nor of <stdexcept>, such as std::bad_alloc or one of the user's own, stays as it is.
[[noreturn]] void rethrow_from(const Node& node);

// One backward pass over the part of a graph that its roots reach.
//
// The nodes are divided into lanes, one for each device, and one node of a lane runs at a time, so
// that the devices run backward at the same time where they have enough to do (LaneWorkers). (A
// node that moves gradients to other devices, as Gather's does, issues to their streams as well.) A
// pass with a single lane stays on the calling thread. The first lane also runs the nodes of plain
// host memory.
//
// The result does not depend on timing: gradients that come to one input of a node are added in the
// order of the nodes that they come from, which a walk of the graph numbers (PassGraph).
//
// Threads: the graph and the lanes are built by the caller before other threads come and are
// constant from then on. A NodeState and the arrivals at it are guarded by the LaneWorkers' mutex
// until the last gradient has come; then they belong to the thread that runs the node, as the list
// of gradients of the node's lane does until they are delivered.
class GraphTask final : public BackwardPass {
 public:
  GraphTask(bool retain_graph, bool create_graph);

  // Asks for the gradient that reaches `edge`: the n-th that is asked for is captured(n). If any is
  // asked for, only nodes on the way there run, and no leaf's `grad` changes.
  void capture(const Edge& edge);
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // Adds a place where the pass starts: an edge with a node, and a gradient of the shape of the
  // tensor there.
  void add_root(Edge edge, Tensor gradient);

  void run();

 private:
  LOCKSTEP_INLINE bool leads_to(const Tensor& leaf) const override;
  bool is_last_node() const override { return workers_.is_last(); }

  using NodeState = PassGraph::NodeState;
  struct Lane {
    Device device;
    bool in_timeline = false;       // some thread has opened its range
    std::vector<Tensor> gradients;  // what the running node gets, then what it returns
  };
  struct Capture {
    Edge edge;
    Tensor gradient;
  };

  // The state of a thread that runs nodes, whatever the caller has set: without inference mode and
  // autocast, so that gradients are normal tensors, computed in the dtypes of forward.
  struct LaneScope {
    explicit LaneScope(GraphTask& task) : pass(task), autograd({.grad = task.create_graph_}) {}
    const BackwardPassScope pass;
    const AutogradStateScope autograd;
    const AutocastStateScope autocast{{.enabled = false}};
  };

  // The state of a thread that works for this pass, and its ranges in the timeline.
  class ThreadScope {
   public:
    explicit ThreadScope(GraphTask& task) : task_(task), scope_(task) {}
    // Opens the lane's range unless some thread has. It ends when this thread stops working for the
    // pass.
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
  // use the gradients of leaves and the captured ones.
  void join_streams() const;

  // Puts a gradient at the end of its way, and the node there to its lane if nothing else is
  // missing. Called with the workers' lock, or before they run.
  void bring(const PassGraph::Target& target, Tensor&& gradient, const Stream& stream);

  void execute(NodeState& state);

  static void order_after(const Stream& reader, const PassGraph::Arrival& part);

  // Makes one gradient for each input of the node: the sum, in the order of the nodes that the
  // parts come from.
  void collect(NodeState& state, std::vector<Tensor>& sums);

  // Sends what the node has returned along its edges. Called with the workers' lock by the thread
  // that has run the node.
  void deliver(NodeState& from);

  static constexpr std::size_t kUsualLanes = 4;
  static constexpr std::size_t kUsualGradients = 8;

  const bool retain_graph_;
  const bool create_graph_;
  // Memory for everything that grows with the graph; a small graph needs no more than this.
  alignas(std::max_align_t) std::array<std::byte, 4096> first_memory_;
  std::pmr::monotonic_buffer_resource memory_{first_memory_.data(), first_memory_.size()};
  PassGraph graph_{&memory_};
  PassVector<Lane> lanes_{&memory_};
  LaneJob job_{*this};
  LaneWorkers<LaneJob> workers_{job_, &memory_};
  std::vector<Capture> captures_;          // each written by the lane of its node
  std::atomic<bool> side_streams_{false};  // some node ran on another stream than the current one
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/graph_task.ipp>
#endif
