// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/path.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Throws a ModuleError that names the first parameter or buffer of the module that is not on
// `device`.
void check_module_device(const TensorWalk& module, Device device);
// The same, where `tensors` is tensors_of(module).
void check_module_device(const TensorWalk& module, const std::vector<Tensor>& tensors,
                         Device device);

// True if all parameters and buffers of the module are on plain `cpu`, or if it has none. A wrapper
// then moves it to a device.
bool is_on_host_memory(const TensorWalk& module);

// Finds the index of a tensor in a list. Looking tensors up in the order of the list costs one
// comparison each.
class IndexInList {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  explicit IndexInList(const std::vector<Tensor>& list) : list_(list) {}

  std::size_t find(const Tensor& tensor);
  std::size_t size() const { return list_.size(); }

 private:
  const std::vector<Tensor>& list_;
  std::size_t next_ = 0;
  std::unordered_map<const TensorImpl*, std::size_t> indices_;
};

// Turns copies that lie one device after another into the results of a Broadcast of the originals,
// or into tensors that do not require grad if grad mode is off or `detach` is set. Leaves copies of
// originals that do not require grad as they are.
void record_broadcast(const std::vector<Tensor>& originals, std::vector<Tensor>& copies,
                      const std::vector<Device>& devices, bool detach);

// Makes a copy of a module a replica: gives it objects of its own (UnsharingVisitor), replaces its
// handles of the originals by this replica's copies, which begin at `copies`, and collects its
// sub-modules that have a data_parallel_replicate.
class ReplicaVisitor : public UnsharingVisitor {
 public:
  ReplicaVisitor(IndexInList& indices, const Tensor* copies, std::size_t copy_id,
                 std::vector<ReplicationCallback>& callbacks)
      : indices_(indices), copies_(copies), copy_id_(copy_id), callbacks_(callbacks) {}

  template <class Node>
  void operator()(const nested::Path& path, Node& node) {
    if constexpr (std::derived_from<std::remove_const_t<Node>, Tensor>) {
      static_assert(!std::is_const_v<Node>,
                    "lockstep: a module that is replicated holds its parameters, buffers and "
                    "sub-modules as members that are not const");
      Tensor& handle = node;
      const std::size_t index = indices_.find(handle);
      if (index != IndexInList::kNone) {
        handle = copies_[index];
      } else if constexpr (std::derived_from<Node, Parameter>) {
        check_is_copy(path, handle);
      }
    } else if constexpr (HasReplicationCallback<Node>) {
      callbacks_.emplace_back(node, copy_id_);
    }
  }

 private:
  // Throws for a parameter that the copy constructor has made anew: training would not reach it.
  void check_is_copy(const nested::Path& path, const Tensor& handle) const;

  IndexInList& indices_;
  const Tensor* const copies_;
  const std::size_t copy_id_;
  std::vector<ReplicationCallback>& callbacks_;
};

// Copies the module for each of `devices` and replaces the originals by that device's `copies`.
// `copies` lists those of all originals, one device after another. Gradients flow back to originals
// that require grad, unless grad mode is off or `detach` is set.
template <class M>
std::vector<M> make_replicas(const M& module, const std::vector<Tensor>& originals,
                             std::vector<Tensor> copies, const std::vector<Device>& devices,
                             bool detach) {
  record_broadcast(originals, copies, devices, detach);
  std::vector<M> replicas;
  std::vector<ReplicationCallback> callbacks;
  IndexInList indices(originals);
  if constexpr (CopyableModule<M>) {
    replicas = std::vector<M>(devices.size(), module);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      ReplicaVisitor visitor(indices, copies.data() + i * originals.size(), i, callbacks);
      walk_module(replicas[i], visitor);
    }
  }
  execute(callbacks, devices);
  return replicas;
}

}  // namespace detail

// Returns one copy of the module per device, with its parameters and buffers there. devices[0] must
// be the module's own device.
//
// The replica on devices[0] shares the module's memory, so what forward writes into its buffers
// stays; all others have copies. Replicas are real modules: parameters() lists theirs, tied ones
// stay tied, frozen ones stay frozen, and other members are copied by the module's copy
// constructor. With `detach`, no replica's parameter requires grad.
//
// **Torch counterpart.** torch.nn.parallel.replicate, whose replicas have no parameters().
// **Devices and streams.** As comm::broadcast_coalesced, with its default buffer size.
// **Backward.** Sums the replicas' gradients into the module's parameters, in the order of the
// devices; a parameter that no replica used gets none.
// **Threads and exceptions.** Any thread, as long as none changes the module. ModuleError naming a
// parameter or buffer that is not on devices[0], a layer that is not initialised yet, or a
// parameter that the module's copy constructor does not share with the copy; DeviceError for a
// device that does not exist; OperandError for a sparse tensor to be copied; what the sub-modules'
// data_parallel_replicate throw.
template <class M>
std::vector<M> replicate(const M& module, const std::vector<Device>& devices, bool detach = false) {
  if (devices.empty()) return {};
  const profile::RecordFunction range("replicate");
  if constexpr (ForeignModule<M>) {
    return module_traits<M>::replicate(module, devices, detach || !is_grad_enabled());
  } else {
    detail::require_module<M>();
    detail::check_parameters(module);
    const std::vector<Tensor> originals = detail::tensors_of(module);
    detail::check_module_device(module, originals, devices[0]);
    std::vector<Tensor> copies =
        functions::detail::flattened(comm::broadcast_coalesced(originals, devices));
    return detail::make_replicas(module, originals, std::move(copies), devices, detach);
  }
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replicate.ipp>
#endif
