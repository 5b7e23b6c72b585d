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

// Runs `module` on all devices, each with its chunk of the input, and gathers the results on
// `output_device`: scatter, replicate, parallel_apply, gather.
//
// An input that is a std::tuple is a list of arguments; ls::kwargs(…) comes last in it.
// `device_ids` defaults to devices(), `output_device` to the first of them. The module must be on
// device_ids[0]. If only one device has work, the calling thread calls the module itself.
//
// With a single device the result is the module's own (a number or a string in a std::vector). With
// several it is gathered, even from one chunk: a tensor without dimensions becomes a vector unless
// the options ask for a sum or mean.
//
// **Torch counterpart.** torch.nn.parallel.data_parallel.
// **Devices and streams.** As the four functions.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** As the four functions.
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

// A module that runs on several devices at once. Each call divides its arguments among the devices
// and gathers the results on one of them.
//
// Replicas keep their memory between calls: a call copies only the parameters and buffers that have
// changed since the last one. (Call mark_changed() after writing through a raw pointer you kept.)
// Everything else is copied from module() at each call, so a mode or an attribute that you set
// there takes effect at once. What forward writes into buffers is kept on the first replica and
// lost on the others, unless the options say otherwise; use PerReplica for other state.
//
// DataParallel takes the module over and moves it to device_ids[0] if it is wholly on plain `cpu`;
// an optimiser made earlier stays valid. With one device it moves the module there from any other,
// and calls the module itself with the arguments moved there; with std::nullopt instead of devices
// it calls the module wherever that is.
//
// A const DataParallel can be called even if the module's forward is not const. Copies share the
// parameters, but have their own replicas. A DataParallel may be part of another one's module,
// which you must move to one device yourself; within a replica its devices begin with the
// replica's.
//
// **Torch counterpart.** torch.nn.DataParallel. Parameter names have no `module.` in front.
// **Devices and streams.** Arguments may be on any device, except that each part of a Scattered
// must be on its own. Results are on output_device.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** Several threads may call one DataParallel at once, as long as nobody,
// forward included, changes the module meanwhile. Short replicas may run one after another on the
// calling thread; a replica may wait for another all the same. The constructor throws a ValueError
// for no devices, a DeviceError for one that does not exist, and a ModuleError for an uninitialised
// module or, with several devices, one that is neither on device_ids[0] nor wholly on `cpu`. A call
// throws what scatter, replicate, parallel_apply and gather throw, and a ModuleError after a move.
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
    if (device_ids_.size() == 1 || detail::is_on_host_memory(module_)) {
      lockstep::to(module_, device_ids_[0]);
    }
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
  // The device of the results: the options' or else the first; without devices, that of the
  // module's first parameter or buffer.
  Device output_device() const {
    if (options_.output_device) return *options_.output_device;
    if (!device_ids_.empty()) return device_ids_[0];
    const std::vector<Tensor> tensors = detail::tensors_of(module_);
    return tensors.empty() ? Device() : tensors[0].device();
  }
  std::int64_t dim() const { return options_.dim; }
  const DataParallelOptions& options() const { return options_; }

  // replicate calls this on the copy in a replica of an outer module. It moves the replica's
  // device, with its size or weight in the split, to the front of the list; a device that is not in
  // the list replaces the first. Results that would go to the first device go to the replica's.
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

  // Calls the module itself, on its one device or, without devices, where it is.
  template <class... Args>
  auto call_alone(const Args&... args) const {
    if (!device_ids_.empty()) return detail::call_on(module_, device_ids_[0], args...);
    return detail::forward(module_, detail::nested::unwrapped(args)...);
  }

  mutable detail::ReplicaCache cache_;

 private:
  // Where call_alone's result is moved to; none if it stays where it is.
  std::optional<Device> output_target() const {
    if (options_.output_device || device_ids_.empty()) return options_.output_device;
    return device_ids_[0];
  }

  std::vector<Device> device_ids_;
  DataParallelOptions options_;
};

}  // namespace lockstep
