// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <memory>

namespace lockstep {

template <class T>
struct Named;  // module/parameters.hpp

namespace detail {

template <class M>
concept ListOfTensors =
    !HasVisitMembers<M> && (std::same_as<typename M::value_type, Tensor> ||
                            std::same_as<typename M::value_type, Named<Tensor>> ||
                            std::same_as<typename M::mapped_type, Tensor>);

// A module of any type, for functions that need only its parameters and buffers. Every module
// converts to one, so such functions need not be templates, and the walk over a type of module is
// compiled once for all of them. The module must outlive it.
class TensorWalk {
 public:
  template <class M>
  TensorWalk(const M& module) : module_(std::addressof(module)), walk_(walk<M>) {
    static_assert(
        !ListOfTensors<M>,
        "lockstep: a list or map of Tensors, such as a state dict, is no module: it has no "
        "Parameter and no Buffer");
  }

  // Calls `fn(const nested::Path&, const Tensor&, TensorKind)` for every Parameter and Buffer, even
  // absent ones.
  void for_each(TensorVisitor::Function fn, SharedNodes shared_nodes = SharedNodes::once) const {
    walk_(module_, {fn}, shared_nodes);
  }

  // The same, but also calls it, with TensorKind::plain, for each plain Tensor that is a member or
  // in a container member. These are not part of the module.
  void for_each_with_plain(TensorVisitor::Function fn) const {
    walk_(module_, {fn, true}, SharedNodes::once);
  }

 private:
  template <class M>
  static void walk(const void* module, const TensorVisitor& visitor, SharedNodes shared_nodes) {
    walk_module(*static_cast<const M*>(module), visitor, shared_nodes);
  }

  const void* module_;
  void (*walk_)(const void* module, const TensorVisitor& visitor, SharedNodes shared_nodes);
};

}  // namespace detail

}  // namespace lockstep
