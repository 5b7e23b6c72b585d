// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/node.hpp>

#include <torch/torch.h>

#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

// The replicas of a module, kept from one call to the next. The first is the module itself; the
// others are copies, each made once and updated at each call.
//
// A copy's trained parameters are not leaves: all copies of one parameter point at one ReduceAdd,
// which points at the parameter. So a call builds no graph for this, and autograd::grad, double
// backward and hooks on the parameter see no difference.
//
// Threads: belongs to one DataParallel, whose calls are made one at a time.
class ReplicaSet {
 public:
  ReplicaSet(ModulePtr module, std::vector<Device> devices, ModuleFactory factory)
      : module_(std::move(module)), devices_(std::move(devices)), factory_(std::move(factory)) {
    forget();
  }

  // Drops the copies, and starts from the module as it is now.
  void forget() {
    copies_.clear();
    originals_ = tensors_of(*module_);
    modules_ = module_->modules();
  }

  // Updates the replicas of the first `used` devices, and returns them.
  std::vector<ModulePtr> refresh(std::size_t used) {
    check_originals();
    if (copies_.empty()) make_copies();
    connect();
    std::vector<ModulePtr> replicas{module_};
    for (std::size_t i = 1; i < used; ++i) {
      copies_[i - 1].refresh();
      replicas.push_back(copies_[i - 1].module());
    }
    return replicas;
  }

  // Called after the first `used` replicas have run: throws a ModuleError if one has written to a
  // parameter that they share.
  void check_shared(std::size_t used) const {
    for (std::size_t i = 1; i < used; ++i) copies_[i - 1].check_shared();
  }

  // Where the copies' graphs end: nodes that stand for trained tensors of the module, with the
  // index of each in `edges()`.
  const std::unordered_map<const autograd::Node*, std::size_t>& ends() const { return ends_; }
  // The gradient edge of each tensor of the module as of the last refresh; none if it is not
  // trained.
  const autograd::edge_list& edges() const { return edges_; }

  // Sets each floating-point buffer of the module to the mean of the replicas', unless it is the
  // same in all that have run.
  void merge_buffers(const std::vector<double>& weights) {
    const at::NoGradGuard guard;
    std::set<const c10::TensorImpl*> merged;  // a buffer with two names is merged once
    for (std::size_t j = 0; j < originals_.size(); ++j) {
      const at::Tensor& original = originals_[j].tensor;
      if (originals_[j].parameter || !original.is_floating_point()) continue;
      if (!merged.insert(original.unsafeGetTensorImpl()).second) continue;
      bool changed = false;
      bool counted = false;
      at::Tensor mean = original * weights[0];
      for (std::size_t i = 1; i < weights.size(); ++i) {
        const at::Tensor here = copies_[i - 1].tensor(j).to(original.device());
        changed = changed || !at::equal(here, original);
        counted = counted || copies_[i - 1].has_changed(j);
        mean = mean + here * weights[i];
      }
      if (!changed) continue;
      // Counted as a change only if a forward has counted one; batch_norm does not.
      (counted ? original : original.variable_data()).copy_(mean);
    }
  }

  // Throws a ModuleError unless the module still has its tensors and sub-modules, all on its
  // device.
  void check_originals() const {
    const char* const advice =
        " since the module was wrapped: write into what was there, with copy_ or set_data, or call "
        "renew() for replicas of the module as it is now";
    const std::vector<ModuleTensor> now = tensors_of(*module_);
    check_same_tensors(originals_, now, advice);
    lockstep::check<ModuleError>(module_->modules() == modules_,
                                 "a sub-module has been replaced, registered or removed", advice);
    check_device(now, devices_[0]);
  }

 private:
  void make_copies() {
    const RandomStateScope random;
    std::vector<ModuleCopy> copies;
    for (std::size_t i = 1; i < devices_.size(); ++i) {
      const ModulePtr copy =
          copies.emplace_back(module_, originals_, devices_[i], factory_).module();
      for (std::size_t earlier = 0; earlier + 1 < copies.size(); ++earlier) {
        lockstep::check<ModuleError>(copies[earlier].module() != copy,
                                     "the factory has to make a new module each time");
      }
    }
    copies_ = std::move(copies);
    ends_.clear();
    edges_.clear();
  }

  // Makes gradients flow from the copies to the module, if they do not already.
  void connect() {
    if (!copies_.empty() && !copies_[0].fits()) {
      // A node takes gradients of one shape. LibTorch makes another once the old one is free.
      for (std::size_t j = 0; j < originals_.size(); ++j) {
        for (ModuleCopy& copy : copies_) copy.connect(j, nullptr);
      }
      edges_.clear();
    }
    autograd::edge_list edges;
    for (const ModuleTensor& original : originals_) {
      const bool trained = original.tensor.requires_grad();
      edges.push_back(trained ? autograd::impl::gradient_edge(original.tensor) : autograd::Edge());
    }
    if (edges == edges_) return;
    edges_.clear();
    ends_.clear();
    std::map<const c10::TensorImpl*, NodePtr> nodes;  // one for a tensor, whatever its names
    for (std::size_t j = 0; j < originals_.size(); ++j) {
      const at::Tensor& original = originals_[j].tensor;
      NodePtr& node = nodes[original.unsafeGetTensorImpl()];
      if (!node && edges[j].is_valid()) {
        node = make_node<ReduceAdd>(original);
        ends_.emplace(node.get(), j);
      }
      for (ModuleCopy& copy : copies_) copy.connect(j, node);
    }
    edges_ = std::move(edges);
  }

  const ModulePtr module_;
  const std::vector<Device> devices_;
  const ModuleFactory factory_;
  std::vector<ModuleTensor> originals_;
  std::vector<ModulePtr> modules_;  // the module and its sub-modules
  std::vector<ModuleCopy> copies_;  // for all devices but the first; empty until made
  // Built by connect(). The edges keep the module's nodes alive, whose addresses are compared.
  autograd::edge_list edges_;
  std::unordered_map<const autograd::Node*, std::size_t> ends_;
};

// Replicas that are all outside the graph.
inline std::vector<ModulePtr> detached_replicas(const ModulePtr& module,
                                                const std::vector<Device>& devices) {
  const std::vector<ModuleTensor> originals = tensors_of(*module);
  check_device(originals, devices[0]);
  const RandomStateScope random;
  std::vector<ModulePtr> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    ModuleCopy copy(module, originals, devices[i], {});
    for (std::size_t j = 0; j < originals.size(); ++j) copy.connect(j, nullptr);
    copy.refresh();
    replicas.push_back(copy.module());
  }
  return replicas;
}

}  // namespace lockstep::libtorch::detail
