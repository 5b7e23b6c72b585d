// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_module_device(const TensorWalk& walk, Device device) {
  walk.for_each([device](const nested::Path& path, const Tensor& tensor, TensorKind kind) {
    if (!tensor.defined() || tensor.device() == device) return;
    fail<ModuleError>("module must have its parameters and buffers on device ", device,
                      " (device_ids[0]) but found one of them on device: ", tensor.device(), " (",
                      kind == TensorKind::parameter ? "parameter" : "buffer", " \"", path.name(),
                      "\")");
  });
}

LOCKSTEP_INLINE void check_module_device(const TensorWalk& walk, const std::vector<Tensor>& tensors,
                                         Device device) {
  const auto is_there = [device](const Tensor& tensor) { return tensor.device() == device; };
  if (!all_of(tensors, is_there)) check_module_device(walk, device);
}

LOCKSTEP_INLINE bool is_on_host_memory(const TensorWalk& walk) {
  bool all = true;
  walk.for_each([&all](const nested::Path& /*path*/, const Tensor& tensor, TensorKind /*kind*/) {
    all = all && (!tensor.defined() || tensor.device().is_host_memory());
  });
  return all;
}

LOCKSTEP_INLINE std::size_t IndexInList::find(const Tensor& tensor) {
  if (next_ == list_.size()) next_ = 0;
  if (!list_.empty() && list_[next_].is_same(tensor)) return next_++;
  if (indices_.empty()) {
    for (std::size_t j = 0; j < list_.size(); ++j) indices_.emplace(list_[j].impl().get(), j);
  }
  const auto found = indices_.find(tensor.impl().get());
  if (found == indices_.end()) return kNone;
  next_ = found->second + 1;
  return found->second;
}

LOCKSTEP_INLINE void ReplicaVisitor::check_is_copy(const nested::Path& path,
                                                   const Tensor& handle) const {
  // A handle that the walk meets again, by another pointer, holds its copy already.
  const std::span copies(copies_, indices_.size());
  const auto is_this = [&handle](const Tensor& copy) { return copy.is_same(handle); };
  check<ModuleError>(!handle.defined() || any_of(copies, is_this),
                     "replicate: the module's copy constructor has made a parameter \"",
                     path.name(),
                     "\" of its own, which would not be trained: a copy of a module shares its "
                     "parameters, as a copy of a Parameter does (or visit_members lists what a "
                     "pointer points to: it lists the pointer itself)");
}

LOCKSTEP_INLINE void record_broadcast(const std::vector<Tensor>& originals,
                                      std::vector<Tensor>& copies,
                                      const std::vector<Device>& devices, bool detach) {
  const auto is_trained = [](const Tensor& tensor) { return tensor.requires_grad(); };
  if (!any_of(originals, is_trained)) return;
  if (detach || !is_grad_enabled()) {
    // The first replica's copies are the originals themselves.
    for (std::size_t c = 0; c < copies.size(); ++c) {
      if (is_trained(originals[c % originals.size()])) copies[c] = copies[c].detach();
    }
    return;
  }
  if (all_of(originals, is_trained)) {
    copies = lockstep::apply(functions::Broadcast{devices, std::move(copies)}, originals);
    return;
  }
  std::vector<Tensor> trained;
  std::copy_if(originals.begin(), originals.end(), std::back_inserter(trained), is_trained);
  functions::Broadcast broadcast{devices};
  std::vector<std::size_t> indices;  // of the copies of trained ones
  for (std::size_t c = 0; c < copies.size(); ++c) {
    if (!is_trained(originals[c % originals.size()])) continue;
    indices.push_back(c);
    broadcast.copies.push_back(std::move(copies[c]));
  }
  std::vector<Tensor> results = lockstep::apply(std::move(broadcast), trained);
  for (std::size_t p = 0; p < indices.size(); ++p) copies[indices[p]] = std::move(results[p]);
}

}  // namespace lockstep::detail
