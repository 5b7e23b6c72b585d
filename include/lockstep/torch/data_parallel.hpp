// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module_traits.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicas/lone_call.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/intraop_threads.hpp>
#include <lockstep/torch/join_backward.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/module_traits.hpp>
#include <lockstep/torch/replica_set.hpp>
#include <lockstep/torch/tensor_traits.hpp>

#include <c10/core/DeviceGuard.h>
#include <torch/torch.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

// A replica in one call of a DataParallel.
template <class Net>
struct RunningReplica {
  std::shared_ptr<Net> net;
  Device device;
  int threads;  // intra-op threads for its operations
};

}  // namespace lockstep::libtorch::detail

namespace lockstep {

template <class Net>
struct module_traits<libtorch::detail::RunningReplica<Net>> {
  using Replica = libtorch::detail::RunningReplica<Net>;

  template <class... Args>
  static auto forward(const Replica& replica, const Args&... args) requires requires {
    { replica.net->forward(args...) } -> std::move_constructible;
  }
  {
    const libtorch::detail::IntraopScope threads(replica.threads);
    const c10::DeviceGuard device(libtorch::detail::at_device(replica.device));
    return replica.net->forward(args...);
  }

  static std::optional<Device> device(const Replica& replica) { return replica.device; }
};

}  // namespace lockstep

namespace lockstep::libtorch {

// A list of lockstep's or LibTorch's devices; each CPU in the latter is a host device of its own.
// By default all of LibTorch's GPUs or, if there are none, lockstep's host devices.
class DeviceList {
 public:
  DeviceList() {
    const auto gpus = static_cast<int>(::torch::cuda::device_count());
    for (int i = 0; i < gpus; ++i) devices_.emplace_back(DeviceType::cuda, i);
    if (gpus == 0) devices_ = host_devices();
  }
  DeviceList(std::initializer_list<Device> devices) : devices_(devices) {}
  DeviceList(std::vector<Device> devices) : devices_(std::move(devices)) {}
  DeviceList(const std::vector<at::Device>& devices) {
    int cpus = 0;
    for (const at::Device device : devices) {
      lockstep::check<DeviceError>(device.is_cpu() || device.is_cuda(),
                                   "lockstep knows CPUs and CUDA devices, not ", device.str());
      if (device.is_cpu()) {
        devices_.emplace_back(DeviceType::cpu, cpus++);
      } else {
        devices_.push_back(libtorch::detail::gpu_of(device));
      }
    }
  }

  const std::vector<Device>& list() const { return devices_; }

 private:
  std::vector<Device> devices_;
};

// Runs a module of LibTorch's on several devices at once: each call divides its arguments among
// them and gathers the results on one. The module, its optimiser and its training loop stay as they
// are.
//
// Arguments and results may be tensors, and tuples, vectors, maps, optionals and plain structs of
// them; keyword arguments are a struct in ls::kwargs(…).
//
// The module itself is the first device's replica, so it keeps buffers that forward changes, and
// everything else. The other replicas are copies made once, at the first call, by clone(). Pass a
// `factory`, which makes a module of the same structure, if the module is not a
// torch::nn::Cloneable, or if clone() would change its structure: because a layer uses another
// layer's weight, or because the module keeps handles of its own to layers in a Sequential or
// another container.
//
// On the CPU the copies share the module's parameters, which forward therefore must not change, and
// the memory of arguments: if a replica writes to its rows and backward needs them, LibTorch may
// report a change that another replica made; it refuses to write to rows of an argument that has a
// graph. Buffers, and on GPUs parameters, are copied at each call, since LibTorch does not tell
// whether they have changed. Copies follow requires_grad and training modes. After changing
// anything else, such as a plain attribute or a layer's option, call renew(). What forward stores
// for the next call, such as a recurrent state, stays in its replica.
//
// **Torch counterpart.** torch.nn.DataParallel; torch::nn::parallel::data_parallel, which clones at
// each call, takes and returns one tensor, and refuses CPUs.
// **Devices and streams.** Every host device is LibTorch's CPU: they share memory, and each replica
// has its own thread. A module on the CPU is moved to the first device if that is a GPU. Work on
// GPUs runs on their current streams. Each replica gets its share of the intra-op threads, and
// OpenBLAS one thread per caller: see HostMathThreadsGuard. A warning says if OpenMP's threads
// would be in the way.
// **Backward.** Gradients of all replicas are summed into the module's parameters, in the order of
// the devices; a parameter that no replica used gets none. On CPUs the replicas' backwards run
// concurrently, each in its thread. A backward that does not retain the graph frees that of all
// results of the call. autograd::grad, retained graphs and double backward work as without
// DataParallel, except autograd::grad with respect to what the module keeps from forward.
// **Threads and exceptions.** As ls::DataParallel, but one thread at a time may call it, or run a
// backward through it if its parameters have hooks. Replicas draw from LibTorch's one generator, in
// no fixed order. A ModuleError for a module that cannot be copied; for one to be copied by clone()
// in which a Linear, Bilinear, embedding or convolution has another layer's weight; for one whose
// tensors are not all on the first device; and for one in which a tensor or sub-module was replaced
// or registered since. A DeviceError for a GPU that does not exist; a ValueError for no devices.
// **Example.**
//   ls::libtorch::DataParallel model{net, {"cpu:0", "cpu:1"}};
//   torch::nll_loss(model(images), labels).backward();
template <TorchModule Net>
class DataParallel {
 public:
  // Makes a new module of the wrapped one's class, with the same names of parameters, buffers and
  // sub-modules.
  using Factory = std::function<std::shared_ptr<Net>()>;

  template <ModuleHandle Handle>
  DataParallel(const Handle& module, DeviceList devices = {}, DataParallelOptions options = {})
      : DataParallel(module, std::move(devices), Factory(), std::move(options)) {}

  template <ModuleHandle Handle, std::invocable Make>
  requires std::convertible_to<std::invoke_result_t<Make&>, detail::ModulePtr> DataParallel(
      const Handle& module, DeviceList devices, Make factory, DataParallelOptions options = {})
      : module_(detail::pointer_of(module)),
        devices_(devices.list()),
        options_(std::move(options)) {
    detail::check_devices(devices_);
    lockstep::check<ModuleError>(module_ != nullptr, "the pointer to the module is null");
    lockstep::check<ValueError>(options_.buffers != ReplicaBuffers::synchronized,
                                "LibTorch's layers do not synchronise their buffers: choose "
                                "ReplicaBuffers::merged or first");
    detail::check_devices({output_device()});
    detail::place(*module_, devices_[0]);
    if (devices_.size() > 1 && devices_[0].is_cpu()) {
      (void)lockstep::detail::HostMath::instance();
      detail::advise_on_spinning();
    }
    replicas_ = std::make_unique<detail::ReplicaSet>(module_, devices_, std::move(factory));
  }

  template <class... Args>
  auto operator()(const Args&... args) const {
    check_not_moved();
    if (devices_.size() < 2) {
      return lockstep::detail::gather_one(call_alone(args...), std::optional(output_device()));
    }
    const auto inputs = scatter(args...);
    return lockstep::detail::nested::gather(run(inputs), output_device(), options_.dim,
                                            {options_.scalar_outputs, inputs.rows()});
  }
  template <class... Args>
  auto forward(const Args&... args) const {
    return (*this)(args...);
  }

  // The wrapped module.
  const std::shared_ptr<Net>& module() const { return module_; }
  // Drops the copies. The next call makes new ones of the module as it is then.
  void renew() {
    check_not_moved();
    replicas_->forget();
  }

  std::vector<at::Tensor> parameters() const { return net().parameters(); }
  std::vector<at::Tensor> buffers() const { return net().buffers(); }
  void train(bool on = true) { net().train(on); }
  void eval() { net().eval(); }
  void zero_grad() { net().zero_grad(); }

  const std::vector<Device>& devices() const { return devices_; }
  const std::vector<Device>& device_ids() const { return devices_; }
  Device output_device() const {
    check_not_moved();
    return options_.output_device.value_or(devices_[0]);
  }
  const DataParallelOptions& options() const { return options_; }

 protected:
  void check_not_moved() const {
    lockstep::check<ModuleError>(module_ != nullptr, "DataParallel: the model has been moved from");
  }
  Net& net() const {
    check_not_moved();
    return *module_;
  }

  template <class... Args>
  auto scatter(const Args&... args) const {
    return lockstep::detail::nested::scatter(devices_, options_.dim, options_.split, args...);
  }

  // Runs the replicas of the devices that have work, and returns their results.
  template <class Inputs>
  auto run(const Inputs& inputs) const {
    const std::vector<Device>& used = inputs.devices();
    std::vector<detail::RunningReplica<Net>> replicas;
    const int threads = detail::IntraopScope::share(used.size());
    const std::vector<detail::ModulePtr> modules = replicas_->refresh(used.size());
    for (std::size_t i = 0; i < used.size(); ++i) {
      replicas.push_back({std::dynamic_pointer_cast<Net>(modules[i]), used[i], threads});
    }
    const auto parts_of = [&inputs](std::size_t i) { return std::tie(inputs.arguments[i]); };
    auto outputs = lockstep::detail::apply_all(
        lockstep::detail::Modules(replicas.data(), replicas.size()), used, parts_of);
    if (used.size() > 1) {
      replicas_->check_shared(used.size());
      if (options_.buffers == ReplicaBuffers::merged) {
        replicas_->merge_buffers(lockstep::detail::nested::row_weights(inputs.rows(), used.size()));
      }
      detail::join_backward(outputs, inputs.arguments, *replicas_);
    }
    return outputs;
  }

  // Calls the module itself, which has one device, and returns its result.
  template <class... Args>
  auto call_alone(const Args&... args) const {
    replicas_->check_originals();
    return lockstep::detail::call_with_moved(module_, devices_[0], args...);
  }

 private:
  std::shared_ptr<Net> module_;
  std::vector<Device> devices_;
  DataParallelOptions options_;
  std::unique_ptr<detail::ReplicaSet> replicas_;
};

template <ModuleHandle Handle>
DataParallel(const Handle&, DeviceList = {}, DataParallelOptions = {})
    -> DataParallel<detail::NetOf<Handle>>;
template <ModuleHandle Handle, std::invocable Make>
DataParallel(const Handle&, DeviceList, Make, DataParallelOptions = {})
    -> DataParallel<detail::NetOf<Handle>>;

// DataParallel without the gather: returns a Scattered of the replicas' outputs, each on its
// device, for ls::DataParallelCriterion. It ignores the gather's options, output_device and
// scalar_outputs.
//
// **Torch counterpart.** DataParallelModel of PyTorch-Encoding.
template <TorchModule Net>
class DataParallelModel : public DataParallel<Net> {
 public:
  using DataParallel<Net>::DataParallel;

  template <class... Args>
  auto operator()(const Args&... args) const {
    this->check_not_moved();
    if (this->devices().size() > 1) return Scattered(this->run(this->scatter(args...)));
    std::vector<decltype(this->call_alone(args...))> outputs;
    outputs.push_back(this->call_alone(args...));
    return Scattered(std::move(outputs));
  }
  template <class... Args>
  auto forward(const Args&... args) const {
    return (*this)(args...);
  }
};

template <ModuleHandle Handle>
DataParallelModel(const Handle&, DeviceList = {}, DataParallelOptions = {})
    -> DataParallelModel<detail::NetOf<Handle>>;
template <ModuleHandle Handle, std::invocable Make>
DataParallelModel(const Handle&, DeviceList, Make, DataParallelOptions = {})
    -> DataParallelModel<detail::NetOf<Handle>>;

}  // namespace lockstep::libtorch
