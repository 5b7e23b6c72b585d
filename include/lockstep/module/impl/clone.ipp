// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor TensorCopies::of(const Tensor& original) {
  Tensor& copy = variables_[original.impl().get()];
  if (copy.defined()) return copy;
  const InferenceModeGuard normal(false);
  if (is_uninitialized(original)) {
    copy = uninitialized_tensor({.dtype = original.dtype(),
                                 .device = original.device(),
                                 .requires_grad = original.requires_grad()});
  } else if (original.is_sparse()) {
    copy = concatenated({original}, original.device());
  } else {
    copy = on_copied_memory(original);
  }
  copy.impl()->sparse_gradient = original.impl()->sparse_gradient;
  if (original.requires_grad() && !copy.requires_grad()) copy.requires_grad_();
  variables_.emplace(copy.impl().get(), copy);  // a member may be listed under several names
  return copy;
}

LOCKSTEP_INLINE Tensor TensorCopies::on_copied_memory(const Tensor& original) {
  const Storage* const storage = original.impl()->storage.get();
  const auto [first, last] = memories_.equal_range(storage);
  for (auto memory = first; memory != last; ++memory) {
    if (same_memory(memory->second.original, original)) return make_view(memory->second.copy);
  }
  const Tensor copy = empty_in_layout_of(original);
  copy_into(copy, original);
  memories_.insert({storage, {original, copy}});
  return copy;
}

LOCKSTEP_INLINE CloningVisitor::CloningVisitor(const TensorWalk& original) {
  original.for_each([this](const nested::Path& /*path*/, const Tensor& handle,
                           TensorKind /*kind*/) { originals_.insert(&handle); });
}

LOCKSTEP_INLINE void CloningVisitor::check_is_copys_own(const nested::Path& path,
                                                        const Tensor& handle) const {
  check<ModuleError>(!originals_.contains(&handle),
                     "clone: a copy of the module has not its own \"", path.name(),
                     "\": visit_members lists a pointer itself, not what it points to");
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE StateDict clone(const StateDict& dict) {
  StateDict copy = dict;
  detail::TensorCopies copies;
  for (NamedTensor& entry : copy) {
    if (entry.tensor.defined()) entry.tensor = copies.of(entry.tensor);
  }
  return copy;
}

}  // namespace lockstep
