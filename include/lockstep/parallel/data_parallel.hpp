// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replica_cache.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

inline std::vector<Device> checked_devices(const std::vector<Device>& devices) {
  check<ValueError>(!devices.empty(), "DataParallel: expected at least one device");
  for (const Device device : devices) check_device(device);
  return devices;
}

// scatter, replicate, parallel_apply: one output for each device that has work. `make` gives the
// replicas for those devices; where only one has, the module itself is called.
template <class M, class MakeReplicas, class... Args>
auto apply_replicas(M& module, const std::tuple<Args...>& inputs,
                    const std::vector<Device>& device_ids, std::int64_t dim, Split split,
                    MakeReplicas make) {
  check_module_device(module, device_ids[0]);
  auto calls = std::apply(
      [&](const auto&... args) {
        return nested::scatter_arguments(device_ids, dim, split, args...);
      },
      inputs);
  if constexpr (sizeof...(Args) == 0) calls.resize(1);  // nothing to divide: one call
  using Output = std::remove_cvref_t<decltype(forward_part(module, calls[0]))>;
  if (calls.size() == 1) {
    std::vector<Output> outputs;
    outputs.push_back(forward_part(module, calls[0]));
    return outputs;
  }
  const std::vector<Device> used(device_ids.begin(),
                                 device_ids.begin() + static_cast<std::ptrdiff_t>(calls.size()));
  auto replicas = make(used);
  return parallel_apply(replicas, calls, used);
}

// The outputs of apply_replicas on `target`: gathered; but what one device alone returned keeps its
// shape.
template <class Output>
Output gather_outputs(std::vector<Output> outputs, const std::vector<Device>& device_ids,
                      Device target, std::int64_t dim) {
  if (device_ids.size() > 1) return gather(outputs, target, dim);
  if (target != device_ids[0]) nested::move_to(outputs[0], target);
  return std::move(outputs[0]);
}

}  // namespace detail

// Runs `module` on all devices, each on its chunk of the arguments, and gathers the results on
// `output_device`: scatter, replicate, parallel_apply, gather.
//
// `device_ids` default to every device of the machine, `output_device` to the first of them. The
// module must be on device_ids[0]. With one device, or where the rows make only one chunk, the
// module itself is called on the calling thread. With one device the result is what the module
// returns; with several it is always gathered, so a tensor without dimensions becomes a vector.
//
// **Torch counterpart.** torch.nn.parallel.data_parallel.
// **Devices and streams.** Those of the four functions.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** Those of the four functions.
// **Example.** ls::Tensor out = ls::data_parallel(net, std::tuple(images), {"cpu:0", "cpu:1"});
template <class M, class... Args>
auto data_parallel(M& module, const std::tuple<Args...>& inputs,
                   const std::vector<Device>& device_ids = devices(),
                   std::optional<Device> output_device = {}, std::int64_t dim = 0,
                   Split split = Split::chunk) {
  const Device target = output_device.value_or(detail::checked_devices(device_ids)[0]);
  check_device(target);
  const auto make = [&](const std::vector<Device>& used) {
    return replicate(module, used, !is_grad_enabled());
  };
  return detail::gather_outputs(
      detail::apply_replicas(module, inputs, device_ids, dim, split, make), device_ids, target,
      dim);
}

template <class M>
auto data_parallel(M& module, const Tensor& input,
                   const std::vector<Device>& device_ids = devices(),
                   std::optional<Device> output_device = {}, std::int64_t dim = 0,
                   Split split = Split::chunk) {
  return data_parallel(module, std::tuple<Tensor>(input), device_ids, output_device, dim, split);
}

// A module that runs on several devices at once: each call divides its arguments among them, and
// the results come back together on one.
//
// The replicas' memory persists: a call copies only those parameters and buffers that changed since
// the last one. Their structure is copied afresh each time, so a mode or an attribute that is set
// on module() is seen by the next call. What forward writes into the buffers of the first replica
// stays, what it writes into the others' does not.
//
// Takes the module over. One whose parameters and buffers are all on plain `cpu` is moved to
// device_ids[0], in place: a tensor is a handle, so an optimiser made earlier stays valid. One that
// is mixed or elsewhere is a ModuleError that names the parameter.
//
// Copies of a DataParallel share the parameters, as copies of the module do.
//
// **Torch counterpart.** torch.nn.DataParallel. Parameter names have no `module.` in front.
// **Devices and streams.** Arguments may be on any device; results are on output_device.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** Two threads may call two DataParallels; one at a time may call one.
// **Example.**
//   ls::DataParallel model{Net{}, ls::devices()};
//   ls::Tensor out = model(images);
template <class M>
class DataParallel {
 public:
  explicit DataParallel(M module, std::vector<Device> device_ids = lockstep::devices(),
                        std::optional<Device> output_device = {}, std::int64_t dim = 0,
                        Split split = Split::chunk)
      : module_(std::move(module)),
        device_ids_(detail::checked_devices(device_ids)),
        output_device_(output_device.value_or(device_ids_[0])),
        dim_(dim),
        split_(split) {
    detail::require_module<M>();
    check_device(output_device_);
    if (is_on_host_memory()) to(module_, device_ids_[0]);
    detail::check_module_device(module_, device_ids_[0]);
  }

  template <class... Args>
  auto operator()(const Args&... args) {
    return detail::gather_outputs(apply_replicas(args...), device_ids_, output_device_, dim_);
  }
  template <class... Args>
  auto forward(const Args&... args) {
    return (*this)(args...);
  }

  M& module() { return module_; }
  const M& module() const { return module_; }
  const std::vector<Device>& devices() const { return device_ids_; }
  const std::vector<Device>& device_ids() const { return device_ids_; }
  Device output_device() const { return output_device_; }
  std::int64_t dim() const { return dim_; }

  std::vector<Parameter> parameters() const { return lockstep::parameters(module_); }
  std::vector<NamedParameter> named_parameters() const {
    return lockstep::named_parameters(module_);
  }
  std::vector<Buffer> buffers() const { return lockstep::buffers(module_); }
  void train(bool on = true) { lockstep::train(module_, on); }
  void eval() { lockstep::eval(module_); }
  void zero_grad() { lockstep::zero_grad(module_); }

  // The wrapped module's members under their own names: a DataParallel is transparent to whatever
  // walks a module.
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    for_each_member(self.module_, visit);
  }

 protected:
  // One output for each device that has work, where it was made.
  template <class... Args>
  auto apply_replicas(const Args&... args) {
    const auto make = [this](const std::vector<Device>& used) {
      const std::vector<Tensor> originals = detail::tensors_of(module_);
      return detail::make_replicas(module_, originals, cache_.refresh(originals, used), used,
                                   !is_grad_enabled());
    };
    return detail::apply_replicas(module_, std::tuple<Args...>(args...), device_ids_, dim_, split_,
                                  make);
  }

 private:
  bool is_on_host_memory() const {
    bool all = true;
    for (const Parameter& parameter : parameters()) {
      all = all && parameter.device().is_host_memory();
    }
    for (const Buffer& buffer : buffers()) all = all && buffer.device().is_host_memory();
    return all;
  }

  M module_;
  std::vector<Device> device_ids_;
  Device output_device_;
  std::int64_t dim_;
  Split split_;
  detail::ReplicaCache cache_;
};

}  // namespace lockstep
