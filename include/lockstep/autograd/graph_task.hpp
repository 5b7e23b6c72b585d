// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/accumulate_grad.hpp>
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/autograd/sum_gradients.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/backend/worker_team.hpp>
#include <lockstep/tensor/autograd_state.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::detail {

// One backward pass over the part of a graph that its roots reach.
//
// The nodes are divided into lanes, one for each device, and each lane is worked off by one thread,
// so that the devices run backward at the same time. (A node that moves gradients to other devices,
// as Gather's does, issues to their streams as well.) A
// pass with a single lane stays on the calling thread. Nodes of plain host memory go with the first
// lane, which is the caller's.
//
// The result does not depend on timing: where several gradients meet in one place they are added in
// the order of the nodes that they come from, and those are numbered by a walk of the graph.
//
// Threads: the graph and the lanes are built by the caller before the team starts and are constant
// from then on. A NodeState is guarded by its lane's mutex until its last gradient has come; then
// it belongs to the lane's thread.
class GraphTask {
 public:
  GraphTask(bool retain_graph, bool create_graph)
      : retain_graph_(retain_graph), create_graph_(create_graph) {}

  // Asks for the gradient that reaches `edge`; returns a number for `captured`. With any capture,
  // only what leads there is run, and no leaf accumulates.
  std::size_t capture(const Edge& edge) {
    captures_.push_back({edge, {}});
    return captures_.size() - 1;
  }
  const Tensor& captured(std::size_t number) const { return captures_[number].gradient; }

  // The gradients' sizes are those of the roots' tensors.
  void run(const std::vector<Edge>& roots, const std::vector<Tensor>& gradients) {
    for (const Edge& root : roots) discover(root.node);
    mark_needed();
    for (std::size_t i = 0; i < roots.size(); ++i) {
      contribute(*find(roots[i].node.get()), roots[i].input_nr, 0, gradients[i],
                 current_stream(gradients[i].device()));
    }
    open_.store(states_.size(), std::memory_order_relaxed);
    for (const Edge& root : roots) settle(*find(root.node.get()));
    run_team(lanes_.size(), [this](std::size_t lane) { work(lanes_[lane]); });
    if (side_streams_.load(std::memory_order_relaxed) || !stream_overrides().empty())
      join_streams();
    for (const Lane& lane : lanes_) {
      if (lane.error) std::rethrow_exception(lane.error);
    }
  }

 private:
  struct Contribution {
    std::size_t input_nr;
    std::size_t from;  // number of the node that it comes from, 0 for a root
    Tensor gradient;
    Stream stream;  // where it was computed
  };
  struct NodeState {
    std::shared_ptr<Node> node;
    std::size_t number = 0;
    std::size_t lane = 0;
    std::size_t waiting = 0;  // how many edges have not brought their gradient yet
    bool needed = false;   // something asked for is reached through it, or is the gradient it gets
    bool applied = false;  // something asked for lies beyond it
    std::vector<Contribution> gradients;
  };
  struct Lane {
    explicit Lane(Device lane_device) : device(lane_device) {}
    Device device;
    std::mutex mutex;
    std::vector<NodeState*> ready;  // guarded by mutex; last in, first out
    // Counts what the lane's thread may have to look at again; whoever changes it notifies.
    std::atomic<std::uint32_t> news{0};
    std::exception_ptr error;  // the lane's thread writes it, the caller reads it after the join
  };
  struct Capture {
    Edge edge;
    Tensor gradient;
  };

  NodeState* find(const Node* node) const { return index_.at(node); }

  // Numbers the nodes from 1 in the order of a depth-first walk, and counts for each how many edges
  // lead to it. Iterative, since a graph can be as deep as the program is long.
  void discover(const std::shared_ptr<Node>& root) {
    if (index_.contains(root.get())) return;
    add(root);
    std::vector<std::pair<NodeState*, std::size_t>> path{{&states_.back(), 0}};
    while (!path.empty()) {
      auto& [state, next] = path.back();
      if (next == state->node->next_edges.size()) {
        finished_.push_back(state);
        path.pop_back();
        continue;
      }
      const std::shared_ptr<Node>& child = state->node->next_edges[next++].node;
      if (!child) continue;
      const auto known = index_.find(child.get());
      if (known != index_.end()) {
        ++known->second->waiting;
      } else {
        add(child);
        ++states_.back().waiting;
        path.emplace_back(&states_.back(), 0);
      }
    }
  }

  void add(const std::shared_ptr<Node>& node) {
    states_.push_back({.node = node,
                       .number = states_.size() + 1,
                       .lane = lane_of(node->stream().device()),
                       .gradients = {}});
    index_.emplace(node.get(), &states_.back());
  }

  std::size_t lane_of(Device device) {
    if (lanes_.empty()) lanes_.emplace_back(device);
    if (device.is_host_memory()) return 0;
    if (lanes_[0].device.is_host_memory()) lanes_[0].device = device;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].device == device) return i;
    }
    lanes_.emplace_back(device);
    return lanes_.size() - 1;
  }

  void mark_needed() {
    for (const Capture& capture : captures_) {
      const auto known = index_.find(capture.edge.node.get());
      if (known != index_.end()) known->second->needed = true;
    }
    for (NodeState* state : finished_) {  // children before parents
      state->applied = captures_.empty();
      for (const Edge& edge : state->node->next_edges) {
        if (edge.node && find(edge.node.get())->needed) state->applied = true;
      }
      if (state->applied) state->needed = true;
    }
  }

  // A gradient that came; `state` may get more.
  void contribute(NodeState& state, std::size_t input_nr, std::size_t from, Tensor gradient,
                  const Stream& stream) {
    if (!gradient.defined()) return;
    state.gradients.push_back({input_nr, from, std::move(gradient), stream});
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

  // The node is ready to run if it waits for nothing more. With the lane's mutex held, or before
  // the team has started.
  void settle(NodeState& state) {
    if (state.waiting > 0) return;
    state.waiting = kReady;
    lanes_[state.lane].ready.push_back(&state);
  }

  void work(Lane& lane) {
    try {
      // The same in every lane, whatever the caller has set: gradients are normal tensors, computed
      // in the dtypes of forward.
      const AutogradStateScope autograd({.grad = create_graph_});
      const AutocastStateScope autocast({.enabled = false});
      while (NodeState* state = next(lane)) {
        execute(*state);
        if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) wake_all();
      }
    } catch (...) {
      lane.error = std::current_exception();
      failed_.store(true, std::memory_order_release);
      wake_all();
    }
  }

  // Blocks until the lane has a ready node; null when the pass is over.
  NodeState* next(Lane& lane) {
    while (true) {
      const std::uint32_t seen = lane.news.load(std::memory_order_acquire);
      if (failed_.load(std::memory_order_acquire) || open_.load(std::memory_order_acquire) == 0) {
        return nullptr;
      }
      {
        const std::lock_guard lock(lane.mutex);
        if (!lane.ready.empty()) {
          NodeState* state = lane.ready.back();
          lane.ready.pop_back();
          return state;
        }
      }
      spin_then_wait(lane.news, [seen](std::uint32_t news) { return news != seen; });
    }
  }

  void wake_all() {
    for (Lane& lane : lanes_) {
      lane.news.fetch_add(1, std::memory_order_release);
      lane.news.notify_all();
    }
  }

  void execute(NodeState& state) {
    Node& node = *state.node;
    std::vector<Tensor> results(node.next_edges.size());
    if (state.needed && !state.gradients.empty()) {
      std::optional<StreamGuard> guard;
      if (current_stream(node.stream().device()) != node.stream()) {
        guard.emplace(node.stream());
        side_streams_.store(true, std::memory_order_relaxed);
      }
      std::vector<Tensor> gradients = collect(state);
      for (Capture& capture : captures_) {
        if (capture.edge.node.get() == &node) {
          capture.gradient = gradients[capture.edge.input_nr];
        }
      }
      if (state.applied) {
        results = node.apply(std::move(gradients));
        if (!retain_graph_) node.release_saved();
      }
    }
    if (results.size() != node.next_edges.size()) results.resize(node.next_edges.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Edge& edge = node.next_edges[i];
      if (edge.node) deliver(state, edge, std::move(results[i]));
    }
  }

  // One gradient for each input of the node, added up in the order of the nodes they come from.
  std::vector<Tensor> collect(NodeState& state) {
    const Stream& stream = state.node->stream();
    for (const Contribution& part : state.gradients) {
      // A gradient on another device is read through that device's current stream.
      for (const Stream& reader : {stream, current_stream(part.gradient.device())}) {
        if (part.stream == reader) continue;
        reader.wait_stream(part.stream);
        part.gradient.record_stream(reader);
      }
    }
    std::stable_sort(state.gradients.begin(), state.gradients.end(),
                     [](const auto& a, const auto& b) { return a.from < b.from; });
    std::vector<Tensor> sums(state.node->num_inputs());
    for (Contribution& part : state.gradients) {
      Tensor& sum = sums[part.input_nr];
      sum = sum.defined() ? sum_gradients(sum, part.gradient) : std::move(part.gradient);
    }
    state.gradients.clear();
    return sums;
  }

  void deliver(const NodeState& from, const Edge& edge, Tensor gradient) {
    NodeState& to = *find(edge.node.get());
    Lane& lane = lanes_[to.lane];
    // What a node puts on another device was issued to that device's current stream.
    const Stream& own = from.node->stream();
    const bool elsewhere = gradient.defined() && gradient.device() != own.device();
    const Stream stream = elsewhere ? current_stream(gradient.device()) : own;
    bool ready = false;
    {
      const std::lock_guard lock(lane.mutex);
      contribute(to, edge.input_nr, from.number, std::move(gradient), stream);
      ready = --to.waiting == 0;
      if (ready) settle(to);
    }
    if (ready && to.lane != from.lane) {
      lane.news.fetch_add(1, std::memory_order_release);
      lane.news.notify_one();
    }
  }

  static constexpr std::size_t kReady = static_cast<std::size_t>(-1);

  const bool retain_graph_;
  const bool create_graph_;
  std::deque<NodeState> states_;  // addresses stay
  std::vector<NodeState*> finished_;
  std::unordered_map<const Node*, NodeState*> index_;
  std::deque<Lane> lanes_;
  std::vector<Capture> captures_;     // each written by the lane of its node
  std::atomic<std::size_t> open_{0};  // nodes that have not been run
  std::atomic<bool> failed_{false};
  std::atomic<bool> side_streams_{false};  // some node's was not the current one of its lane
};

}  // namespace lockstep::detail
