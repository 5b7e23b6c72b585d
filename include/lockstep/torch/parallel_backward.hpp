// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/torch/intraop_threads.hpp>
#include <lockstep/torch/node.hpp>
#include <lockstep/torch/thread_state.hpp>
#include <lockstep/warning.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

// LibTorch runs a backward on the CPU in the one thread that asks for it. To run the replicas'
// concurrently, one node stands for their parts of the graph: its inputs are the gradients of all
// their results, its outputs those of their parameters and arguments.
namespace lockstep::libtorch::detail {

// Where the replicas' graphs end, at candidates for the node's outputs, which have numbers.
class GraphEnds {
 public:
  // A node that stands for candidate k, by any of its inputs.
  void add_node(const autograd::Node* node, std::size_t k) { nodes_.emplace(node, k); }
  void add_edge(const autograd::Edge& edge, std::size_t k) {
    edges_[edge.function.get()].emplace(edge.input_nr, k);
  }

  static constexpr std::size_t kInside = SIZE_MAX;
  static constexpr std::size_t kStray = SIZE_MAX - 1;

  // The candidate at an edge of a replica's graph; kInside if the edge leads further into the
  // graph; kStray if it leads out where there is no candidate.
  std::size_t find(const autograd::Edge& edge) const {
    const autograd::Node* const node = edge.function.get();
    if (const auto found = nodes_.find(node); found != nodes_.end()) return found->second;
    if (const auto found = edges_.find(node); found != edges_.end()) {
      const auto place = found->second.find(edge.input_nr);
      return place == found->second.end() ? kStray : place->second;
    }
    return node->num_outputs() == 0 ? kStray : kInside;
  }

 private:
  std::unordered_map<const autograd::Node*, std::size_t> nodes_;
  std::unordered_map<const autograd::Node*, std::unordered_map<std::uint32_t, std::size_t>> edges_;
};

// One replica's part of the graph.
struct GraphPart {
  autograd::edge_list roots;        // the edges of its results
  std::vector<std::size_t> inputs;  // the node's inputs, one for each root
  autograd::edge_list ends;
  std::vector<std::size_t> outputs;  // the node's outputs, one for each end
};

// How to join the replicas' parts of the graph.
struct JoinPlan {
  std::vector<GraphPart> parts;
  autograd::edge_list next;  // the node's next edges
};

// True if the nodes behind some edges lead on to a candidate. Walks the whole graph behind them.
inline bool lead_on(const autograd::edge_list& edges, const GraphEnds& ends) {
  std::unordered_set<const autograd::Node*> visited;
  std::vector<const autograd::Node*> pending;
  const auto visit = [&](const autograd::Edge& edge) {
    if (visited.insert(edge.function.get()).second) pending.push_back(edge.function.get());
  };
  for (const autograd::Edge& edge : edges) visit(edge);
  while (!pending.empty()) {
    const autograd::Node* const node = pending.back();
    pending.pop_back();
    for (const autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      if (ends.find(edge) < GraphEnds::kStray) return true;
      visit(edge);
    }
  }
  return false;
}

// For a copy that trains something that is none of its parameters, where the module itself trains
// its parameters alone.
inline void warn_of_own_weight(std::size_t replica) {
  warn(lockstep::detail::str(
      "DataParallel: replica ", replica,
      " computes with a weight that is none of its parameters, as a copy by clone() does if the "
      "module has handles of its own to layers in a Sequential or ModuleList. Give a factory that "
      "makes such a module"));
}

// Finds the ends of each part, and numbers the node's outputs: the candidates to which some part
// leads. False if no node may stand for the parts: if a part leads to something trained that is not
// a candidate, if two parts share something, or if an end leads on to another, as an argument that
// this module has made does, so that LibTorch would reach that one within the part and again after
// the node.
inline bool find_ends(JoinPlan& plan, const GraphEnds& ends,
                      const autograd::edge_list& candidates) {
  std::vector<std::size_t> outputs(candidates.size(), GraphEnds::kStray);
  std::unordered_map<const autograd::Node*, std::size_t> visited;  // and the part of each
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    GraphPart& part = plan.parts[i];
    std::vector<const autograd::Node*> pending;
    const auto visit = [&](const autograd::Edge& edge) {
      const auto [place, is_new] = visited.emplace(edge.function.get(), i);
      if (is_new) pending.push_back(edge.function.get());
      return place->second == i;
    };
    for (const autograd::Edge& root : part.roots) {
      if (ends.find(root) != GraphEnds::kInside || !visit(root)) return false;
    }
    std::unordered_set<autograd::Edge> found;
    while (!pending.empty()) {
      const autograd::Node* const node = pending.back();
      pending.pop_back();
      for (const autograd::Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        const std::size_t end = ends.find(edge);
        if (end == GraphEnds::kStray) {
          if (i > 0 && edge.function->num_outputs() == 0) warn_of_own_weight(i);
          return false;
        }
        if (end == GraphEnds::kInside) {
          if (!visit(edge)) return false;
          continue;
        }
        if (!found.insert(edge).second) continue;
        if (outputs[end] == GraphEnds::kStray) {
          outputs[end] = plan.next.size();
          plan.next.push_back(candidates[end]);
        }
        part.ends.push_back(edge);
        part.outputs.push_back(outputs[end]);
      }
    }
    // A copy that also uses a parameter of the module itself, to which its own one's node leads.
    for (const autograd::Edge& end : part.ends) {
      for (const autograd::Edge& edge : end.function->next_edges()) {
        if (found.contains(edge)) return false;
      }
    }
  }
  return !lead_on(plan.next, ends);
}

// Removes the hooks on the tensor behind an edge, retain_grad's included, from its node, and
// returns the node and the hooks; nothing with a LibTorch that does not have both kinds there.
template <class Edge>
auto take_hooks(const Edge& edge) {
  if constexpr (requires { edge.function->retains_grad_hooks(); }) {
    return std::tuple(edge.function, std::exchange(edge.function->tensor_pre_hooks(), {}),
                      std::exchange(edge.function->retains_grad_hooks(), {}));
  } else {
    return std::tuple<>();
  }
}

// Removes the hooks on the tensors behind some edges, retain_grad's included, until destroyed: they
// are for the replicas' sum, but newer LibTorchs also call them where a part's gradient is
// captured.
//
// Threads: nothing orders concurrent passes through one module, so one may miss the hooks that the
// other has removed; and nobody may add a hook meanwhile.
template <class Edge = autograd::Edge>
class HooksAside : lockstep::detail::NonCopyable {
 public:
  ~HooksAside() {
    if constexpr (kThere) {
      for (auto& [node, hooks, retaining] : aside_) {
        node->tensor_pre_hooks() = std::move(hooks);
        node->retains_grad_hooks() = std::move(retaining);
      }
    }
  }

  void add(const std::vector<Edge>& edges) {
    if constexpr (kThere) {
      for (const Edge& edge : edges) {
        // A node with several of the edges has no hooks left after the first.
        if (edge.function->tensor_pre_hooks().empty() &&
            edge.function->retains_grad_hooks().empty()) {
          continue;
        }
        aside_.push_back(take_hooks(edge));
      }
    }
  }

 private:
  using Taken = decltype(take_hooks(std::declval<const Edge&>()));
  static constexpr bool kThere = std::tuple_size_v<Taken> > 0;

  std::vector<Taken> aside_;
};

// The node. It keeps the replicas' graphs unchanged and frees them as a whole, since the gradient
// of an activation that the module keeps uses them, too, later in the same pass.
//
// Double backward uses them as well, which is why their ends are ReduceAdds and not leaves. Its
// order of nodes is not known, so after a pass that has recorded its gradients the node only passes
// its inputs on to the replicas' graphs, which LibTorch then runs itself.
class ParallelBackward : public autograd::Node {
 public:
  ParallelBackward(std::vector<GraphPart> parts, autograd::edge_list next)
      : autograd::Node(roots_of(parts)),
        parts_(std::make_shared<const std::vector<GraphPart>>(std::move(parts))) {
    // Instead of the roots, for which LibTorch's constructor has ordered the node.
    next_edges() = std::move(next);
  }

  std::string name() const override { return "lockstep::ParallelBackward"; }

  autograd::variable_list apply(autograd::variable_list&& grads) override {
    std::shared_ptr<const std::vector<GraphPart>> parts;
    {
      const std::lock_guard lock(mutex_);
      if (passes_on_) return std::move(grads);
      parts = parts_;
    }
    lockstep::check<AutogradError>(parts != nullptr,
                                   "Trying to backward through the graph of a DataParallel a "
                                   "second time: specify retain_graph=true at the first");
    // What this pass does not need is skipped. Only this thread knows.
    std::vector<Pass> passes;
    for (const GraphPart& part : *parts) {
      Pass pass = pass_of(part, grads);
      if (!pass.roots.empty() && !pass.ends.empty()) passes.push_back(std::move(pass));
    }
    grads.clear();
    const bool create = at::GradMode::is_enabled();
    const int threads = IntraopScope::share(std::max<std::size_t>(passes.size(), 1));
    const lockstep::detail::ThreadState state = lockstep::detail::ThreadState::capture();
    HooksAside<> aside;
    for (const Pass& pass : passes) aside.add(pass.ends);
    lockstep::detail::run_team(passes.size(), [&](std::size_t i) {
      const lockstep::detail::ThreadState::Scope scope(state);
      const IntraopScope intraop(threads);
      Pass& pass = passes[i];
      pass.results = autograd::Engine::get_default_engine().execute(
          pass.roots, pass.grads, /*keep_graph=*/true, create, /*accumulate_grad=*/false,
          pass.ends);
      pass.grads.clear();
    });
    if (create) pass_on_later();
    autograd::variable_list sums(num_outputs());
    for (Pass& pass : passes) {
      for (std::size_t k = 0; k < pass.results.size(); ++k) {
        at::Tensor& sum = sums[pass.outputs[k]];
        sum = added(std::move(sum), std::move(pass.results[k]));
      }
    }
    return sums;
  }

  // Called after `apply` in a pass that does not keep the graph.
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    parts_.reset();
  }

 private:
  // One replica's backward.
  struct Pass {
    autograd::edge_list roots;
    autograd::variable_list grads;
    autograd::edge_list ends;
    std::vector<std::size_t> outputs;
    autograd::variable_list results = {};
  };

  static autograd::edge_list roots_of(const std::vector<GraphPart>& parts) {
    autograd::edge_list roots;
    for (const GraphPart& part : parts) {
      roots.insert(roots.end(), part.roots.begin(), part.roots.end());
    }
    return roots;
  }

  // Takes effect at the end of the running pass, which still needs the edges.
  void pass_on_later() {
    autograd::Engine::get_default_engine().queue_callback([self = pointer_to(*this), this] {
      const std::lock_guard lock(mutex_);
      if (passes_on_ || !parts_) return;
      next_edges() = roots_of(*parts_);
      parts_.reset();
      passes_on_ = true;
    });
  }

  Pass pass_of(const GraphPart& part, const autograd::variable_list& grads) const {
    Pass pass;
    for (std::size_t r = 0; r < part.roots.size(); ++r) {
      if (!grads[part.inputs[r]].defined()) continue;
      pass.roots.push_back(part.roots[r]);
      pass.grads.push_back(grads[part.inputs[r]]);
    }
    for (std::size_t e = 0; e < part.ends.size(); ++e) {
      if (!task_should_compute_output(part.outputs[e])) continue;
      pass.ends.push_back(part.ends[e]);
      pass.outputs.push_back(part.outputs[e]);
    }
    return pass;
  }

  // Guarded by the node's mutex_: two threads may run through a retained graph.
  std::shared_ptr<const std::vector<GraphPart>> parts_;  // null: released
  bool passes_on_ = false;
};

}  // namespace lockstep::libtorch::detail
