// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/engine/graph_task.hpp>
#include <lockstep/autograd/engine/node_index.hpp>
#include <lockstep/autograd/engine/pass_graph.hpp>
#include <lockstep/autograd/engine/sum_gradients.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void rethrow_from(const Node& node) {
  try {
    throw;
  } catch (const std::exception& error) {
    try {
      const std::string text = str(error.what(), " (in the backward of ", node.name(), " on ",
                                   node.stream().device(), ")");
      const auto throw_if = [&]<class E>(std::type_identity<E>) {
        if (typeid(error) == typeid(E)) throw E(text);
      };
      OwnErrors::each(throw_if);
      throw_if(std::type_identity<Error>());
      StandardErrors::each(throw_if);
    } catch (const std::bad_alloc&) {
      // There is no memory for a longer text: the original exception is thrown.
    }
    throw;
  }
}

LOCKSTEP_INLINE GraphTask::GraphTask(bool retain_graph, bool create_graph)
    : BackwardPass(current_backward_pass),
      retain_graph_(retain_graph),
      create_graph_(create_graph) {}

LOCKSTEP_INLINE void GraphTask::capture(const Edge& edge) {
  captures_.push_back({edge, {}});
  note_capture();
}

LOCKSTEP_INLINE void GraphTask::add_root(Edge edge, Tensor gradient) {
  graph_.add_root(std::move(edge), std::move(gradient));
}

LOCKSTEP_INLINE void GraphTask::run() {
  const profile::RecordFunction range("backward");
  std::vector<const Node*> wanted;
  for (const Capture& capture : captures_) wanted.push_back(capture.edge.node.get());
  graph_.build(wanted);
  for (NodeState& state : graph_.states()) state.lane = lane_of(state.node->stream().device());
  workers_.set_lanes(lanes_.size());
  for (PassGraph::Root& root : graph_.roots()) {
    const Stream stream = current_stream(root.gradient.device());
    bring(root.target, std::move(root.gradient), stream);
  }
  // One for each thread, whose passes usually take equally long.
  static constinit thread_local Pace pace;
  workers_.run(graph_.states().size(), pace);
  if (side_streams_.load(std::memory_order_relaxed) || !StreamOverrides::empty()) join_streams();
  workers_.rethrow_error();
  if (has_callbacks()) {
    const LaneScope scope(*this);
    run_callbacks();
  }
}

LOCKSTEP_INLINE bool GraphTask::leads_to(const Tensor& leaf) const {
  std::shared_ptr<Node> accumulator;
  {
    const std::lock_guard lock(leaf.impl()->mutex);
    accumulator = leaf.impl()->accumulator.lock();
  }
  return graph_.contains(accumulator.get());
}

LOCKSTEP_INLINE void GraphTask::ThreadScope::enter(std::size_t lane) {
  if (!profile::enabled() || std::exchange(task_.lanes_[lane].in_timeline, true)) return;
  (void)ranges_.emplace_back(profile::Literal("backward"), task_.lanes_[lane].device);
}

LOCKSTEP_INLINE std::size_t GraphTask::lane_of(Device device) {
  if (lanes_.empty()) add_lane(device);
  if (device.is_host_memory()) return 0;
  if (lanes_[0].device.is_host_memory()) lanes_[0].device = device;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].device == device) return i;
  }
  add_lane(device);
  return lanes_.size() - 1;
}

LOCKSTEP_INLINE void GraphTask::add_lane(Device device) {
  if (lanes_.empty()) lanes_.reserve(kUsualLanes);
  lanes_.push_back({.device = device, .gradients = {}});
  lanes_.back().gradients.reserve(kUsualGradients);
}

LOCKSTEP_INLINE void GraphTask::join_streams() const {
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

LOCKSTEP_INLINE void GraphTask::bring(const PassGraph::Target& target, Tensor&& gradient,
                                      const Stream& stream) {
  NodeState* const ready = graph_.bring(target, std::move(gradient), stream);
  if (ready) workers_.put(ready->lane, *ready);
}

LOCKSTEP_INLINE void GraphTask::execute(NodeState& state) {
  Node& node = *state.node;
  if (state.needed && state.reached) {
    std::optional<StreamGuard> guard;
    if (current_stream(node.stream().device()) != node.stream()) {
      guard.emplace(node.stream());
      side_streams_.store(true, std::memory_order_relaxed);
    }
    std::vector<Tensor>& gradients = lanes_[state.lane].gradients;
    collect(state, gradients);
    if (node.gradient_hooks) [[unlikely]] {
      // A hook may remove itself. A pass that captures changes no `grad`.
      const std::shared_ptr<const GradientHooks> hooks = node.gradient_hooks;
      hooks->call(gradients, captures_.empty());
    }
    if (!captures_.empty() && node.is_accumulator()) {  // which is not applied
      static_cast<const AccumulateGrad&>(node).call_gradient_hooks(gradients);
    }
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

LOCKSTEP_INLINE void GraphTask::order_after(const Stream& reader, const PassGraph::Arrival& part) {
  if (*part.stream == reader) return;
  reader.wait_stream(*part.stream);
  part.gradient.record_stream(reader);
}

LOCKSTEP_INLINE void GraphTask::collect(NodeState& state, std::vector<Tensor>& sums) {
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

LOCKSTEP_INLINE void GraphTask::deliver(NodeState& from) {
  std::vector<Tensor>& results = lanes_[from.lane].gradients;
  const std::span<const PassGraph::Target> targets = graph_.targets(from);
  results.resize(targets.size());  // a node that was not applied has left none
  const Stream& own = from.node->stream();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].to == NodeIndex::kNone) continue;
    Tensor& gradient = results[i];
    // A result on another device was issued to that device's current stream.
    const bool elsewhere = gradient.defined() && gradient.device() != own.device();
    const Stream stream = elsewhere ? current_stream(gradient.device()) : own;
    bring(targets[i], std::move(gradient), stream);
  }
  results.clear();
}

}  // namespace lockstep::detail
