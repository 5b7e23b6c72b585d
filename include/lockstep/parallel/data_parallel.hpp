// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/replicas/balance.hpp>
#include <lockstep/parallel/replicas/data_parallel_call.hpp>
#include <lockstep/parallel/replicas/lone_call.hpp>
#include <lockstep/parallel/replicas/module_wrapper.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/replication_callback.hpp>
#include <lockstep/parallel/scatter_gather.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {

// Runs `module` on all devices, each on its chunk of the input, and gathers the results on
// `output_device`: scatter, replicate, parallel_apply, gather.
//
// An input that is a std::tuple is the list of arguments, keyword arguments last in it, as
// ls::kwargs(…). `device_ids` default to devices(), `output_device` to the first of them. The
// module must be on device_ids[0]. With one device, or where the rows make only one chunk, the
// module itself is called on the calling thread. With one device the result is what the module
// returns (a number or a string in a std::vector, as several are); with several it is always
// gathered, so a tensor without dimensions becomes a vector unless the options ask for a sum or
// mean.
//
// **Torch counterpart.** torch.nn.parallel.data_parallel.
// **Devices and streams.** Those of the four functions.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** Those of the four functions.
// **Example.** ls::Tensor out = ls::data_parallel(net, images, {"cpu:0", "cpu:1"});
template <class M, class Input>
auto data_parallel(M& module, const Input& input, const std::vector<Device>& device_ids = devices(),
                   const DataParallelOptions& options = {}) {
  detail::check_devices(device_ids);
  const Device target = options.output_device.value_or(device_ids[0]);
  check_device(target);
  const auto call = [&](const auto&... args) {
    if (device_ids.size() == 1) {
      return detail::gather_one(detail::call_on(module, device_ids[0], args...), target);
    }
    const auto inputs = detail::nested::scatter(device_ids, options.dim, options.split, args...);
    auto replicas = detail::one_call::replicate(module, inputs.devices());
    const auto outputs =
        detail::one_call::parallel_apply(module, replicas, inputs, options.buffers);
    return detail::nested::gather(outputs, target, options.dim,
                                  {options.scalar_outputs, inputs.rows()});
  };
  if constexpr (detail::is_tuple<Input>) {
    return std::apply(call, input);
  } else {
    return call(input);
  }
}

template <class M, class Input, std::convertible_to<std::optional<Device>> Target>
auto data_parallel(M& module, const Input& input, const std::vector<Device>& device_ids,
                   const Target& output_device, std::int64_t dim = 0) {
  return lockstep::data_parallel(module, input, device_ids,
                                 DataParallelOptions{.output_device = output_device, .dim = dim});
}

// A module that runs on several devices at once: each call divides its arguments among them, and
// the results come back together on one.
//
// With one device the arguments are moved there and the module itself is called; with std::nullopt
// in place of devices it is called as it is, wherever it may be.
//
// The replicas' memory persists: a call copies only those parameters and buffers that changed since
// the last one (what is written through a kept pointer has to be told with mark_changed()). Their
// structure is copied afresh each time, so a mode or an attribute that is set on module() is seen
// by the next call. What forward writes into the buffers of the first replica stays, what it writes
// into the others' does not, unless the options say otherwise; other state that a replica is to
// keep is a PerReplica.
//
// Takes the module over. One whose parameters and buffers are all on plain `cpu` is moved to
// device_ids[0], in place: a tensor is a handle, so an optimiser made earlier stays valid. One that
// is mixed or elsewhere is a ModuleError that names the parameter.
//
// A const DataParallel can be called, whether or not the module's forward is const: what forward
// changes in the module itself or in the first replica's buffers stays, as in any call.
//
// Copies of a DataParallel share the parameters, as copies of the module do, and have replicas of
// their own; a moved one takes its replicas along. One DataParallel may be part of another's
// module: within a replica its devices begin with the replica's, and its own replicas are filled at
// each forward. Such a module is on one device as a whole before it is handed over.
//
// **Torch counterpart.** torch.nn.DataParallel. Parameter names have no `module.` in front.
// **Devices and streams.** Arguments may be on any device, but the parts of a Scattered have to be
// on theirs; results are on output_device. A result owns what it holds: what a std::string_view in
// it refers to may be gone with the replica.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** Several threads may call one at once, as long as nobody, its forward
// included, changes the module meanwhile. The constructor throws a ValueError for no devices, a
// DeviceError for one that does not exist, a ModuleError for a module that is mixed, elsewhere, or
// not initialised yet, and what `to` throws. A call throws what scatter, replicate, parallel_apply
// and gather throw, and a ModuleError if the DataParallel has been moved from. Replicas that take a
// few microseconds may run one after another on the calling thread; one may wait for another all
// the same.
// **Example.**
//   ls::DataParallel model{Net{}, ls::devices()};
//   ls::Tensor out = model(images);
template <class M>
class DataParallel : public detail::ModuleWrapper<M> {
 public:
  explicit DataParallel(M module, std::vector<Device> device_ids = lockstep::devices(),
                        DataParallelOptions options = {})
      : detail::ModuleWrapper<M>(std::move(module)),
        device_ids_(std::move(device_ids)),
        options_(std::move(options)) {
    detail::require_module<M>();
    detail::check_devices(device_ids_);
    check_device(output_device());
    detail::check_balance(device_ids_);
    detail::check_parameters(module_);
    if (detail::is_on_host_memory(module_)) lockstep::to(module_, device_ids_[0]);
    detail::check_module_device(module_, device_ids_[0]);
  }

  // torch's order of arguments.
  template <std::convertible_to<std::optional<Device>> Target>
  DataParallel(M module, std::vector<Device> device_ids, const Target& output_device,
               std::int64_t dim = 0)
      : DataParallel(std::move(module), std::move(device_ids),
                     DataParallelOptions{.output_device = output_device, .dim = dim}) {}

  DataParallel(M module, std::nullopt_t /*no devices*/, DataParallelOptions options = {})
      : detail::ModuleWrapper<M>(std::move(module)), options_(std::move(options)) {
    detail::require_module<M>();
  }

  template <class... Args>
  auto operator()(const Args&... args) const {
    moved_from_.check("DataParallel");
    if (device_ids_.size() < 2) return detail::gather_one(call_alone(args...), output_target());
    const auto inputs = detail::nested::scatter(device_ids_, options_.dim, options_.split, args...);
    auto replicas = detail::one_call::replicate(module_, inputs.devices(), &cache_);
    const auto outputs =
        detail::one_call::parallel_apply(module_, replicas, inputs, options_.buffers);
    return detail::nested::gather(outputs, output_device(), options_.dim,
                                  {options_.scalar_outputs, inputs.rows()});
  }
  template <class... Args>
  auto forward(const Args&... args) const {
    return (*this)(args...);
  }

  const std::vector<Device>& devices() const { return device_ids_; }
  const std::vector<Device>& device_ids() const { return device_ids_; }
  // The device of results: the options' or the first; without either, that of the module's first
  // parameter or buffer.
  Device output_device() const {
    if (options_.output_device) return *options_.output_device;
    if (!device_ids_.empty()) return device_ids_[0];
    const std::vector<Tensor> tensors = detail::tensors_of(module_);
    return tensors.empty() ? Device() : tensors[0].device();
  }
  std::int64_t dim() const { return options_.dim; }
  const DataParallelOptions& options() const { return options_; }

  // Called for the copy of this in a replica of an outer module: puts the replica's device first in
  // the list, with its size or weight of the split, or, if the list does not have it, in the first
  // device's place. Results that were to be on the first device will be on that one.
  void data_parallel_replicate(const std::shared_ptr<CallbackContext>& context,
                               std::size_t copy_id) {
    if (device_ids_.empty()) return;
    const Device root = context->devices[copy_id];
    if (options_.output_device == device_ids_[0]) options_.output_device = root;
    const auto place = detail::find(device_ids_, root);
    if (place == device_ids_.end()) {
      device_ids_[0] = root;
    } else {
      options_.split =
          options_.split.with_first(static_cast<std::size_t>(place - device_ids_.begin()));
      std::rotate(device_ids_.begin(), place, place + 1);
    }
  }

 protected:
  using detail::ModuleWrapper<M>::module_;
  using detail::ModuleWrapper<M>::moved_from_;

  // Calls the module itself, which has one device or none, and returns its result.
  template <class... Args>
  auto call_alone(const Args&... args) const {
    if (!device_ids_.empty()) return detail::call_on(module_, device_ids_[0], args...);
    return detail::forward(module_, detail::nested::undivided(args)...);
  }

  mutable detail::ReplicaCache cache_;

 private:
  // The device that a single module's result is moved to; nothing if it stays where it is.
  std::optional<Device> output_target() const {
    if (options_.output_device || device_ids_.empty()) return options_.output_device;
    return device_ids_[0];
  }

  std::vector<Device> device_ids_;
  DataParallelOptions options_;
};

}  // namespace lockstep
