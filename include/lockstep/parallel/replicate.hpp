// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/walk/tensor_walk.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// Throws a ModuleError unless all parameters and buffers of the module are on `device`. Names are
// only made where one is not.
void check_module_device(const TensorWalk& module, Device device);
// The same, where the module's tensors_of are known.
void check_module_device(const TensorWalk& module, const std::vector<Tensor>& tensors,
                         Device device);

// All parameters and buffers of the module, if there are any, are on plain `cpu`: it can be put on
// any device.
bool is_on_host_memory(const TensorWalk& module);

// Where each variable is in a list of tensors. Asked in the order of the list it compares once.
class PlaceInList {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  explicit PlaceInList(const std::vector<Tensor>& list) : list_(list) {}

  std::size_t find(const Tensor& tensor);
  // From the front again.
  void restart() { next_ = 0; }

 private:
  const std::vector<Tensor>& list_;
  std::size_t next_ = 0;
  std::unordered_map<const TensorImpl*, std::size_t> places_;
};

// Records the copies, those of all originals for one device after another, as what a Broadcast of
// the originals returned. Copies of what does not require grad stay as they are.
void record_broadcast(const std::vector<Tensor>& originals, std::vector<Tensor>& copies,
                      const std::vector<Device>& devices);

// Makes a copy of a module a replica in one walk: gives it objects of its own (UnsharingVisitor),
// puts this replica's copies of the originals, from `copies` on, into its handles, and notes which
// of its sub-modules are to be told.
class ReplicaVisitor : public UnsharingVisitor {
 public:
  ReplicaVisitor(PlaceInList& places, const Tensor* copies, std::size_t copy_id,
                 std::vector<ReplicationCallback>& callbacks)
      : places_(places), copies_(copies), copy_id_(copy_id), callbacks_(callbacks) {}

  template <class Node>
  void operator()(const std::string& /*path*/, Node& node) {
    if constexpr (std::derived_from<std::remove_const_t<Node>, Tensor>) {
      static_assert(!std::is_const_v<Node>,
                    "lockstep: a module that is replicated holds its parameters, buffers and "
                    "sub-modules as members that are not const");
      rebind(node);
    } else if constexpr (HasReplicationCallback<Node>) {
      callbacks_.emplace_back(node, copy_id_);
    }
  }

 private:
  // A handle that the walk meets a second time, by another pointer, holds its copy already.
  void rebind(Tensor& handle) {
    const std::size_t place = places_.find(handle);
    if (place != PlaceInList::kNone) handle = copies_[place];
  }

  PlaceInList& places_;
  const Tensor* const copies_;
  const std::size_t copy_id_;
  std::vector<ReplicationCallback>& callbacks_;
};

// A copy of the module for each of `devices`, which holds that device's `copies` in place of the
// originals. `copies` lists those of all originals for one device after another. Unless `detach`,
// gradients flow back from the copies to the originals that require grad.
template <class M>
std::vector<M> make_replicas(const M& module, const std::vector<Tensor>& originals,
                             std::vector<Tensor> copies, const std::vector<Device>& devices,
                             bool detach) {
  const auto trained = [](const Tensor& tensor) { return tensor.requires_grad(); };
  const bool any_trained = std::any_of(originals.begin(), originals.end(), trained);
  if (!detach && is_grad_enabled() && any_trained) {
    record_broadcast(originals, copies, devices);
  } else if (any_trained) {
    // Nothing is recorded, so no copy may require grad; the first replica's are the originals
    // themselves.
    for (std::size_t c = 0; c < copies.size(); ++c) {
      if (trained(originals[c % originals.size()])) copies[c] = copies[c].detach();
    }
  }

  std::vector<M> replicas;
  replicas.reserve(devices.size());
  std::vector<ReplicationCallback> callbacks;
  PlaceInList places(originals);
  if constexpr (CopyableModule<M>) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      places.restart();
      ReplicaVisitor visitor(places, copies.data() + i * originals.size(), i, callbacks);
      walk_module(replicas.emplace_back(module), visitor, Paths::none);
    }
  }
  execute(callbacks, devices);
  return replicas;
}

}  // namespace detail

// One copy of the module for each device, with its parameters and buffers there.
//
// Replicas are real modules: parameters() lists theirs, tied ones stay tied. On devices[0], where
// the module must be, the replica shares the module's memory: what forward writes into its buffers
// stays. On every other device, and where a device is listed again, it has copies. Frozen
// parameters stay frozen; other members are copied with the module's copy constructor. With
// `detach` no replica's parameter requires grad.
//
// **Torch counterpart.** torch.nn.parallel.replicate, whose replicas have no parameters().
// **Devices and streams.** comm::broadcast_coalesced: one flat buffer a device and dtype.
// **Backward.** The replicas' gradients are summed into the module's parameters, in the order of
// the devices; a parameter that no replica used gets none.
// **Threads and exceptions.** ModuleError naming a parameter that is not on devices[0], or is not
// initialised yet.
template <class M>
std::vector<M> replicate(const M& module, const std::vector<Device>& devices, bool detach = false) {
  detail::require_module<M>();
  if (devices.empty()) return {};
  const profile::RecordFunction range("replicate");
  detail::check_initialized(module);
  const std::vector<Tensor> originals = detail::tensors_of(module);
  detail::check_module_device(module, originals, devices[0]);
  std::vector<Tensor> copies =
      functions::detail::flattened(comm::broadcast_coalesced(originals, devices));
  return detail::make_replicas(module, originals, std::move(copies), devices, detach);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/replicate.ipp>
#endif
