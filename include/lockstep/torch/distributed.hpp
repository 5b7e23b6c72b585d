// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/lent_gradients.hpp>
#include <lockstep/torch/lent_module.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/module_traits.hpp>
#include <lockstep/torch/streams.hpp>
#include <lockstep/torch/tensor_traits.hpp>

#include <torch/torch.h>

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::libtorch {

namespace detail {

// Moves a module on the CPU to the rank's device, and lends it to lockstep there.
template <class Net>
LentModule<Net> lent_to_rank(std::shared_ptr<Net> module, const distributed::ProcessGroup& group,
                             const DistributedDataParallelOptions& options) {
  lockstep::check<ModuleError>(module != nullptr, "the pointer to the module is null");
  const Device device = options.device_ids.empty() ? group.device() : options.device_ids[0];
  check_devices({device});
  place(*module, device);
  if (device.is_cpu()) (void)lockstep::detail::HostMath::instance();  // ranks multiply at once
  wait_for_libtorch(device);
  return LentModule<Net>(std::move(module), device);
}

}  // namespace detail

// Trains a module of LibTorch's on several ranks, each with its own part of the data: lockstep's
// DistributedDataParallel on the module's own memory. parallel/distributed.hpp says what it does
// and requires. The module, its optimiser and its training loop stay as they are.
//
// Gradients become views of the buckets' memory, in which backward computes the ranks' mean.
// optimizer.zero_grad() keeps them there if it fills them with zeros; if it drops them, the next
// backward's are copied there.
//
// **Torch counterpart.** torch.nn.parallel.DistributedDataParallel, which LibTorch does not have.
// **Devices and streams.** A rank's device is its group's, or that in device_ids; a module on the
// CPU is moved there. For a GPU the program needs lockstep's CUDA side; the work of both libraries
// is ordered on their current streams, and no two ranks of a process may share a GPU, because
// LibTorch runs all backwards of a GPU in one thread. On the CPU a rank is a thread or a process,
// and OpenBLAS gets one thread per caller, as with DataParallel.
// **Backward.** As lockstep's. A backward started within another one is a pass of its own: it must
// reach all parameters, unless find_unused_parameters is set. If the outer one has reached a
// parameter, it is part of that, and find_unused_parameters must not be set. After torch::load into
// the module, an earlier graph is not averaged any more. Rank 0's buffers arrive without counting
// as a change: an earlier forward's graph that needs them uses the new values.
// **Threads and exceptions.** As lockstep's. A DeviceError for a GPU that one of the libraries does
// not have; a DtypeError for a parameter or buffer of a dtype that lockstep does not have; a
// ModuleError for a module with tensors on several devices, for sparse gradients, and, at the next
// call, for a tensor that was replaced, registered, moved or converted since.
// **Example.**
//   ls::distributed::run(ls::devices(), [&](ls::distributed::ProcessGroup group) {
//     Net net;
//     ls::libtorch::DistributedDataParallel model{net, group};
//     torch::optim::SGD sgd(net->parameters(), 0.1);
//     for (auto& [images, labels] : part_of(group.rank(), group.size())) {
//       sgd.zero_grad();
//       torch::nll_loss(model(images), labels).backward();
//       sgd.step();
//     }
//   });
template <TorchModule Net>
class DistributedDataParallel : private lockstep::DistributedDataParallel<detail::LentModule<Net>> {
  using Base = lockstep::DistributedDataParallel<detail::LentModule<Net>>;

 public:
  template <ModuleHandle Handle>
  DistributedDataParallel(const Handle& module, distributed::ProcessGroup group,
                          DistributedDataParallelOptions settings = {})
      : Base(detail::lent_to_rank<Net>(detail::pointer_of(module), group, settings), group,
             settings),
        gradients_(std::make_shared<detail::LentGradients>(Base::module().originals(),
                                                           Base::module().parameters())) {
    gradients_->attach();
    detail::wait_for_lockstep(device());
  }

  // On the default group.
  template <ModuleHandle Handle>
  explicit DistributedDataParallel(const Handle& module,
                                   DistributedDataParallelOptions settings = {})
      : DistributedDataParallel(module, distributed::default_group(), std::move(settings)) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    check_not_moved();
    Base::module().refresh();
    gradients_->attach();
    detail::wait_for_libtorch(device());
    const GradModeGuard mode(at::GradMode::is_enabled());
    return Base::operator()(args...);
  }
  template <class... Args>
  auto forward(const Args&... args) {
    return (*this)(args...);
  }

  // The wrapped module.
  const std::shared_ptr<Net>& module() const { return Base::module().net(); }
  std::vector<at::Tensor> parameters() const { return net().parameters(); }
  std::vector<at::Tensor> buffers() const { return net().buffers(); }
  void train(bool on = true) { net().train(on); }
  void eval() { net().eval(); }
  void zero_grad() { net().zero_grad(); }

  using Base::device;
  using Base::join_device;
  using Base::join_process_group;
  using Base::logging_data;
  using Base::no_sync;
  using Base::options;
  using Base::process_group;
  using Base::register_comm_hook;

  template <std::invocable F>
  void join(F&& fn, const JoinOptions& settings = {}) {
    lockstep::join(*this, std::forward<F>(fn), settings);
  }
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& settings) {
    return std::make_unique<Hook>(*this, Base::join_hook(settings));
  }

 private:
  void check_not_moved() const {
    lockstep::check<ModuleError>(module() != nullptr,
                                 "DistributedDataParallel: the model has been moved from");
  }
  Net& net() const {
    check_not_moved();
    return *module();
  }

  // The base's hook, after which LibTorch gets the resulting gradients and memory.
  class Hook final : public JoinHook {
   public:
    Hook(DistributedDataParallel& model, std::unique_ptr<JoinHook> base)
        : model_(model), base_(std::move(base)) {}
    void begin(const JoinContext& context) override {
      base_->begin(context);
      gradients_ = model_.gradients_;
    }
    void main_hook(int phase, const JoinExchange& exchange) override {
      detail::wait_for_libtorch(model_.device());
      base_->main_hook(phase, exchange);
      gradients_->give_back();
    }
    void post_hook(int last_rank) override {
      model_.check_not_moved();
      model_.Base::module().refresh();
      detail::wait_for_libtorch(model_.device());
      base_->post_hook(last_rank);
      detail::wait_for_lockstep(model_.device());
    }

   private:
    DistributedDataParallel& model_;
    const std::unique_ptr<JoinHook> base_;
    std::shared_ptr<detail::LentGradients> gradients_;  // even if the model is moved meanwhile
  };

  std::shared_ptr<detail::LentGradients> gradients_;
};

template <ModuleHandle Handle>
DistributedDataParallel(const Handle&, distributed::ProcessGroup,
                        DistributedDataParallelOptions = {})
    -> DistributedDataParallel<detail::NetOf<Handle>>;
template <ModuleHandle Handle>
DistributedDataParallel(const Handle&, DistributedDataParallelOptions = {})
    -> DistributedDataParallel<detail::NetOf<Handle>>;

}  // namespace lockstep::libtorch
