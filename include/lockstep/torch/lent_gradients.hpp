// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/backward_pass.hpp>
#include <lockstep/autograd/grad_hooks.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/torch/lent.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/node.hpp>
#include <lockstep/torch/streams.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

// Presents a backward pass of LibTorch's as one of lockstep's.
class LentPass final : public lockstep::detail::BackwardPass {
 public:
  using Nodes = std::unordered_map<const lockstep::detail::TensorImpl*, autograd::Node*>;

  explicit LentPass(Nodes accumulators)
      : BackwardPass(nullptr), accumulators_(std::move(accumulators)), unfinished_(all_leaves()) {}

  // Called after each node that accumulates a gradient, before its hooks.
  void count() { --unfinished_; }
  void end() { run_callbacks(); }

 private:
  // Called by the thread that runs a node of the pass.
  bool leads_to(const Tensor& leaf) const override {
    autograd::Node* const node = accumulators_.at(leaf.impl().get());
    const auto* const wanted = autograd::get_current_graph_task_exec_info();
    if (wanted && !wanted->empty()) {
      const auto found = wanted->find(node);
      return found != wanted->end() && found->second.should_execute();
    }
    return autograd::get_current_graph_task_nodes_in_graph()->count(node) != 0;
  }
  // All other nodes lead to a leaf.
  bool is_last_node() const override { return unfinished_ == 0; }

  // The number of leaves that the pass reaches, which need not be parameters. In a pass that skips
  // some it is unknown, and SIZE_MAX.
  static std::size_t all_leaves() {
    const auto* const wanted = autograd::get_current_graph_task_exec_info();
    if (wanted && !wanted->empty()) return SIZE_MAX;
    std::size_t count = 0;
    for (const autograd::Node* const node : *autograd::get_current_graph_task_nodes_in_graph()) {
      count += node->num_outputs() == 0 ? 1 : 0;
    }
    return count;
  }

  const Nodes accumulators_;
  std::size_t unfinished_;  // leaves that have not been reported yet
};

// Passes the gradients of LibTorch's parameters to lockstep's parameters on the same memory, and
// back: a hook on one of the latter finds LibTorch's gradient in `grad`, and LibTorch gets what the
// hook puts there.
//
// It takes over all gradients at the first one of a pass, and each one when it is new, and gives
// all back at the end of the pass, even if that fails. In between LibTorch's parameters may show
// memory that is being reduced.
//
// Threads: one at a time. LibTorch runs a backward on the CPU in the calling thread, and on a GPU
// in a thread for which the caller waits.
class LentGradients : public std::enable_shared_from_this<LentGradients>,
                      lockstep::detail::NonCopyable {
 public:
  LentGradients(const std::vector<ModuleTensor>& originals,
                const std::vector<NamedParameter>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& original = originals[i].tensor;
      const Tensor& parameter = parameters[i].tensor;
      if (!original.requires_grad() || nodes_.contains(parameter.impl().get())) continue;
      const NodePtr node = autograd::impl::gradient_edge(original).function;
      for (const auto& hook : node->post_hooks()) {
        lockstep::check<ModuleError>(!dynamic_cast<const Hook*>(hook.get()),
                                     "DistributedDataParallel: parameter \"", originals[i].name,
                                     "\" belongs to another DistributedDataParallel already");
      }
      nodes_.emplace(parameter.impl().get(), nullptr);
      members_.push_back({originals[i].name, original, parameter});
    }
  }
  ~LentGradients() {
    for (Member& member : members_) member.detach();
  }

  // Registers the hooks, once a shared_ptr owns this. Called before each forward as well, since a
  // parameter that torch::load has written has another node.
  void attach() {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      const NodePtr node = autograd::impl::gradient_edge(member.original).function;
      if (!node || node == member.node) continue;  // null: it is frozen
      member.detach();
      member.hook = node->add_post_hook(std::make_unique<Hook>(weak_from_this(), i));
      member.node = node;
      nodes_[member.parameter.impl().get()] = node.get();
    }
  }

  // Gives LibTorch's parameters the gradients of lockstep's.
  void give_back() {
    if (members_.empty()) return;
    wait_for_lockstep(members_[0].parameter.device());
    for (Member& member : members_) member.give_back();
  }

 private:
  // Runs after a parameter's AccumulateGrad, and reports it.
  class Hook final : public autograd::FunctionPostHook {
   public:
    Hook(std::weak_ptr<LentGradients> owner, std::size_t i) : owner_(std::move(owner)), i_(i) {}
    autograd::variable_list operator()(const autograd::variable_list& outputs,
                                       const autograd::variable_list& /*inputs*/) override {
      if (const auto owner = owner_.lock()) owner->on_gradient(i_);
      return outputs;
    }

   private:
    const std::weak_ptr<LentGradients> owner_;
    const std::size_t i_;
  };

  struct Member {
    std::string name;
    at::Tensor original;
    Tensor parameter;
    NodePtr node{};  // accumulates the gradient
    std::uintptr_t hook = 0;
    Tensor shared{};  // the last gradient that both had

    void detach() {
      if (node) node->del_post_hook(hook);
      node = nullptr;
    }
    void take() {
      const at::Tensor& grad = original.grad();
      if (grad.defined() && !same_memory(grad, shared)) {
        shared = lent(grad, parameter.device(),
                      lockstep::detail::str("the gradient of parameter \"", name, "\""));
      }
      parameter.requires_grad_(original.requires_grad());
      parameter.set_grad(grad.defined() ? shared : Tensor());
    }
    void give_back() {
      const Tensor grad = parameter.grad();
      if (!grad.defined()) {
        original.mutable_grad() = at::Tensor();
      } else if (!same_memory(original.grad(), grad)) {
        original.mutable_grad() = lent_back(grad);
      }
      shared = grad;
    }
  };

  // Owned by LibTorch's callback at the end of a pass, which is destroyed if the pass fails.
  class End : lockstep::detail::NonCopyable {
   public:
    End(std::shared_ptr<LentPass> pass, std::weak_ptr<LentGradients> owner)
        : pass_(std::move(pass)), owner_(std::move(owner)) {}
    ~End() {
      try {
        leave();
      } catch (...) {
        // Out of memory: LibTorch's gradients are useless after such a pass anyway.
      }
    }
    void reached() {
      const NoGradGuard guard;
      try {
        pass_->end();
      } catch (...) {
        leave();
        throw;
      }
      leave();
    }

   private:
    void leave() {
      if (!std::exchange(pass_, nullptr)) return;
      if (const auto owner = owner_.lock()) owner->give_back();
    }

    std::shared_ptr<LentPass> pass_;
    const std::weak_ptr<LentGradients> owner_;
  };

  void on_gradient(std::size_t i) {
    // As LibTorch's: whether the gradients are differentiable.
    const GradModeGuard mode(at::GradMode::is_enabled());
    std::shared_ptr<LentPass> pass = pass_.lock();
    if (!pass) pass = begin();
    pass->count();
    const lockstep::detail::BackwardPassScope scope(*pass);
    Member& member = members_[i];
    if (!member.original.grad().defined() && member.original.requires_grad()) {
      member.original.mutable_grad() = at::zeros_like(member.original);
    }
    member.take();
    wait_for_libtorch(member.parameter.device());
    lockstep::detail::TensorImpl& leaf = *member.parameter.impl();
    std::shared_ptr<const lockstep::detail::LeafHooks> hooks;
    {
      const std::lock_guard lock(leaf.mutex);
      hooks = leaf.hooks;
    }
    if (!hooks) return;
    for (const auto& hook : hooks->after) hook.function(member.parameter);
  }

  std::shared_ptr<LentPass> begin() {
    for (Member& member : members_) member.take();
    auto pass = std::make_shared<LentPass>(nodes_);
    autograd::Engine::get_default_engine().queue_callback(
        [end = std::make_shared<End>(pass, weak_from_this())] { end->reached(); });
    pass_ = pass;
    return pass;
  }

  std::vector<Member> members_;  // the trained parameters
  LentPass::Nodes nodes_;
  std::weak_ptr<LentPass> pass_;  // the running one
};

}  // namespace lockstep::libtorch::detail
