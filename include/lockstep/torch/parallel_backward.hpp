// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/torch/intraop_threads.hpp>
#include <lockstep/torch/node.hpp>
#include <lockstep/torch/thread_state.hpp>

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

// LibTorch runs a backward on the CPU in the one thread that asks for it. So that the replicas' run
// at once, one node stands for their parts of the graph: its inputs are the gradients of all that
// they returned, its outputs those of the parameters and arguments that they were given.
namespace lockstep::libtorch::detail {

// Where the replicas' graphs end: what candidate k for the node's outputs belongs to, for each k.
class GraphEnds {
 public:
  // A node that stands for candidate k, whichever of its inputs.
  void add_node(const autograd::Node* node, std::size_t k) { nodes_.emplace(node, k); }
  void add_edge(const autograd::Edge& edge, std::size_t k) {
    edges_[edge.function.get()].emplace(edge.input_nr, k);
  }

  static constexpr std::size_t kInside = SIZE_MAX;
  static constexpr std::size_t kStray = SIZE_MAX - 1;

  // The candidate for an edge of a replica's graph; or that it leads further into it; or kStray for
  // one that leads out where no candidate is.
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
  autograd::edge_list roots;        // of its results
  std::vector<std::size_t> inputs;  // of the node, one a root
  autograd::edge_list ends;
  std::vector<std::size_t> outputs;  // of the node, one an end
};

// What the replicas' parts of the graph are to be joined by.
struct JoinPlan {
  std::vector<GraphPart> parts;
  autograd::edge_list next;  // of the node
};

// Whether the nodes behind some edges lead on to a candidate. Walks over the whole graph there.
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

// Finds the ends of each part, and numbers the node's outputs: those of the candidates, whose
// numbers `ends` has, that a part leads to. False if a part leads to something else that is
// trained, which the node would not reach, or if two of them have something in common: then no node
// may stand for them. Nor may one if an end leads on to another, as an argument does that this
// module has made: LibTorch would go on to that one within the part, and after the node again.
inline bool find_ends(JoinPlan& plan, const GraphEnds& ends,
                      const autograd::edge_list& candidates) {
  std::vector<std::size_t> outputs(candidates.size(), GraphEnds::kStray);
  std::unordered_map<const autograd::Node*, std::size_t> visited;  // and by which part
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
        if (end == GraphEnds::kStray) return false;
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
    // A copy that uses a parameter of the module itself besides its own, whose node leads there.
    for (const autograd::Edge& end : part.ends) {
      for (const autograd::Edge& edge : end.function->next_edges()) {
        if (found.contains(edge)) return false;
      }
    }
  }
  return !lead_on(plan.next, ends);
}

// Takes the hooks on the tensor behind an edge, retain_grad's among them, from its node, which
// comes first in the result; nothing with a LibTorch that does not have both kinds there.
template <class Edge>
auto take_hooks(const Edge& edge) {
  if constexpr (requires { edge.function->retains_grad_hooks(); }) {
    return std::tuple(edge.function, std::exchange(edge.function->tensor_pre_hooks(), {}),
                      std::exchange(edge.function->retains_grad_hooks(), {}));
  } else {
    return std::tuple<>();
  }
}

// Puts aside the hooks on the tensors behind some edges, retain_grad's among them, until destroyed:
// they are for the replicas' sum, but newer LibTorchs call them where the gradient of a part is
// captured, too.
//
// Threads: nothing orders two passes through one module at the same time, one of which may miss the
// hooks that the other has put aside; neither may anybody add a hook meanwhile.
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
        // Of a node with several of the edges none are left after the first.
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

// The node. It keeps the replicas' graphs as they are, and gives them up as a whole: the gradient
// of an activation that the module keeps goes by them, too, later in the same pass.
//
// So does double backward, which is why their ends are ReduceAdds and not leaves; there what
// LibTorch runs first is not known. After a pass that has made a graph of its gradients the node
// therefore only passes on, to the replicas' graphs, what it gets, and LibTorch runs these as it
// does all others.
class ParallelBackward : public autograd::Node {
 public:
  ParallelBackward(std::vector<GraphPart> parts, autograd::edge_list next)
      : autograd::Node(roots_of(parts)),
        parts_(std::make_shared<const std::vector<GraphPart>>(std::move(parts))) {
    // In the place of the roots, above which LibTorch has placed the node with them.
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
    // What this pass does not ask for is left out. Only this thread knows.
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

  // At the end of the pass that runs, which still needs the edges.
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

  // Guarded by the node's mutex_: a graph that is kept may be gone through by two threads.
  std::shared_ptr<const std::vector<GraphPart>> parts_;  // null: released
  bool passes_on_ = false;
};

}  // namespace lockstep::libtorch::detail
