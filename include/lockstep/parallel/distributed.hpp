// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/ddp/distributed_buffers.hpp>
#include <lockstep/parallel/ddp/distributed_logging.hpp>
#include <lockstep/parallel/ddp/distributed_verify.hpp>
#include <lockstep/parallel/ddp/reducer.hpp>
#include <lockstep/parallel/ddp/reducer_claims.hpp>
#include <lockstep/parallel/distributed_options.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/parallel/replicas/lone_call.hpp>
#include <lockstep/parallel/replicas/module_wrapper.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/scoped_value.hpp>

#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// While it lives, backward passes of one DistributedDataParallel are not synchronised. See
// no_sync().
class [[nodiscard]] NoSync : detail::NonCopyable {
 public:
  explicit NoSync(std::shared_ptr<detail::Reducer> reducer)
      : reducer_(std::move(reducer)), off_(reducer_->synchronizes(), false) {}

 private:
  const std::shared_ptr<detail::Reducer> reducer_;
  const detail::ScopedValue<bool> off_;
};

// A module trained on several ranks at once, each with its own part of the data. After backward,
// every rank has the mean of all ranks' gradients.
//
// Each rank makes the same module and calls it with its own arguments, which are moved to its
// device; the result is the module's own. Ranks are threads (distributed::run) or processes. The
// constructor checks that all ranks have the same parameters and buffers and gives them rank 0's
// values.
//
// Gradients are collected in buckets, and each full bucket is reduced while backward goes on. This
// happens in every backward that reaches the parameters, even a second one through the same graph.
// Gradients are divided by the number of ranks, so means over equal batches give the mean over all;
// a loss that is a sum must be multiplied by the number of ranks to give the sum over all.
//
// `grad` is a view of a bucket; the next backward adds to it in place or, after zero_grad,
// overwrites it. While its bucket is reduced a parameter has no `grad`. A grad hook set before
// wrapping must clone what it wants to keep; a hook that removes a gradient before the mean is
// taken is a ModuleError. A parameter marked by expect_sparse_gradient (nn::Embedding with
// `sparse`) gets a sparse, coalesced mean outside the buckets.
//
// DistributedDataParallel takes the module over, as DataParallel does. It can be moved, but not
// copied. A parameter belongs to one DistributedDataParallel at a time: wrapping it twice is a
// ModuleError, so ranks that are threads each make a module.
//
// **Torch counterpart.** torch.nn.parallel.DistributedDataParallel. Parameter names have no
// `module.` in front; gradients are always views of buckets.
// **Devices and streams.** A rank has one device; a backward that reaches models on several is an
// AutogradError. Reductions wait for the stream that backward runs on, and the current stream of
// backward's caller waits for them.
// **Backward.** autograd::grad is not synchronised, and backward with create_graph is an
// AutogradError.
// **Threads and exceptions.** One thread per rank. Every rank makes the same calls in the same
// order. ModuleError on every rank, naming the parameter, if the models differ; in forward in grad
// mode, if a parameter was replaced, added or unfrozen after wrapping. AutogradError at the end of
// a backward that leaves a parameter without gradient, unless find_unused_parameters or
// static_graph is set. A parameter that a rank freezes between forward and backward counts as zero
// in the mean, which that rank gets, too. After an exception in backward, only destroy the object:
// other ranks may have gone on.
// **Example.**
//   ls::distributed::run(ls::devices(), [&](ls::distributed::ProcessGroup group) {
//     ls::DistributedDataParallel model{Net{}, group};
//     ls::optim::SGD sgd{model.parameters(), {.lr = 0.1}};
//     for (auto [images, labels] : part_of(group.rank(), group.size())) {
//       sgd.zero_grad();
//       ls::cross_entropy(model(images), labels.to(group.device())).backward();
//       sgd.step();
//     }
//   });
template <class M>
class DistributedDataParallel : public detail::ModuleWrapper<M> {
 public:
  DistributedDataParallel(M module, distributed::ProcessGroup process_group,
                          DistributedDataParallelOptions options = {})
      : detail::ModuleWrapper<M>(std::move(module)),
        process_group_(std::move(process_group)),
        options_(std::move(options)) {
    detail::require_callable<M>();
    const std::vector<NamedParameter> parameters = this->named_parameters();
    std::vector<NamedParameter> trained;
    for (const NamedParameter& parameter : parameters) {
      if (parameter.tensor.requires_grad()) trained.push_back(parameter);
    }
    // Comes first, since another thread may have wrapped the module already and be changing it.
    claims_ = std::make_unique<detail::ReducerClaims>(trained);
    detail::check_parameters(module_, "DistributedDataParallel");
    device_ = choose_device();
    detail::check_module_device(module_, device_);
    detail::verify_same_model(process_group_, device_, parameters, lockstep::named_buffers(module_),
                              options_);
    check<ModuleError>(!trained.empty(),
                       "DistributedDataParallel is not needed when a module doesn't have any "
                       "parameter that requires a gradient.");
    if (options_.init_sync) {
      detail::CoalescedBroadcast().run(process_group_, detail::tensors_of(module_), 0);
    }
    reducer_ = std::make_shared<detail::Reducer>(trained, process_group_, options_);
    reducer_->attach();
  }

  explicit DistributedDataParallel(M module, DistributedDataParallelOptions options = {})
      : DistributedDataParallel(std::move(module), distributed::default_group(),
                                std::move(options)) {}

  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
  DistributedDataParallel(DistributedDataParallel&&) = default;
  DistributedDataParallel& operator=(DistributedDataParallel&&) = default;
  ~DistributedDataParallel() = default;

  // Calls the module. Outside no_sync it first gives all ranks rank 0's buffers, so every rank has
  // to call it.
  template <class... Args>
  auto operator()(const Args&... args) {
    reducer()->begin_forward(module_, *claims_);
    const bool synchronizes = reducer_->synchronizes();
    const Timer timer{synchronizes && is_grad_enabled() ? reducer_.get() : nullptr};
    if (synchronizes) {
      const std::optional<JoinContext>& joined = reducer_->join();
      const int root = joined ? joined->meet(detail::Reducer::kForward).last_active() : 0;
      if (options_.forward_sync_buffers) synchronize_buffers(root);
    }
    return detail::call_on(module_, device_, args...);
  }
  template <class... Args>
  auto forward(const Args&... args) {
    return (*this)(args...);
  }

  // Stops synchronising gradients until the returned guard is destroyed; the next synchronised
  // backward then averages what has accumulated. What counts is when backward is called; a forward
  // within leaves buffers as they are.
  //
  // **Torch counterpart.** DistributedDataParallel.no_sync, where forward within counts. A loop
  // that calls both within behaves the same.
  // **Example.**
  //   {
  //     const auto guard = model.no_sync();
  //     loss(model(a)).backward();       // accumulates
  //   }
  //   loss(model(b)).backward();         // accumulates, and averages both
  NoSync no_sync() const { return NoSync(reducer()); }

  // Calls `fn`, in which ranks may have different numbers of batches; see lockstep::join.
  //
  // A rank whose fn has returned takes part in the others' passes with zero gradients, and runs a
  // communication hook with them; its own gradients become the others' mean. Before each forward,
  // the last rank that still runs gives all ranks its buffers; at the end, the last of those that
  // ran longest gives them its parameters and buffers. Without forward_sync_buffers each rank keeps
  // its own buffers. Optimiser state is not shared: broadcast it yourself if it matters.
  //
  // divide_by_initial_world_size has no effect with a communication hook, which takes the mean
  // itself. A forward that communicates by itself, as SyncBatchNorm's does, waits for ranks that
  // never come. Do not move the object within fn.
  //
  // **Torch counterpart.** DistributedDataParallel.join, where a joined rank's gradients stay as
  // they were.
  // **Example.** model.join([&] { for (const auto& batch : my_batches) step(model, batch); });
  template <std::invocable F>
  void join(F&& fn, const JoinOptions& options = {}) {
    lockstep::join(*this, std::forward<F>(fn), options);
  }
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& /*options*/) {
    return std::make_unique<Hook>(*this);
  }
  Device join_device() const { return device_; }
  const distributed::ProcessGroup& join_process_group() const { return process_group_; }

  // Makes `hook` reduce the buckets instead of the group's mean; see CommHook. Every rank registers
  // the same hook, once. A ValueError for a second or an empty one, during backward, and if a
  // parameter has sparse gradients.
  void register_comm_hook(CommHook hook) { reducer()->register_comm_hook(std::move(hook)); }

  // What this rank has done so far.
  //
  // **Torch counterpart.** _get_ddp_logging_data.
  DDPLoggingData logging_data() const { return reducer()->logging_data(); }

  Device device() const { return device_; }
  const distributed::ProcessGroup& process_group() const { return process_group_; }
  const DistributedDataParallelOptions& options() const { return options_; }

 private:
  using detail::ModuleWrapper<M>::module_;
  using detail::ModuleWrapper<M>::moved_from_;
  using Clock = std::chrono::steady_clock;

  class Hook final : public JoinHook {
   public:
    explicit Hook(DistributedDataParallel& model) : model_(model) {}
    ~Hook() override {
      if (reducer_) reducer_->end_join();
    }
    void begin(const JoinContext& context) override {
      model_.reducer()->begin_join(context);
      reducer_ = model_.reducer_;
    }
    void main_hook(int phase, const JoinExchange& exchange) override {
      if (phase == detail::Reducer::kBackward) {
        reducer_->shadow(exchange);
      } else if (model_.options_.forward_sync_buffers) {
        model_.synchronize_buffers(exchange.last_active());
      }
    }
    void post_hook(int last_rank) override {
      const std::vector<Parameter> parameters = model_.parameters();
      detail::CoalescedBroadcast().run(model_.process_group_,
                                       {parameters.begin(), parameters.end()}, last_rank);
      if (model_.options_.forward_sync_buffers) model_.synchronize_buffers(last_rank);
    }

   private:
    DistributedDataParallel& model_;
    std::shared_ptr<detail::Reducer> reducer_;  // set by begin
  };

  struct Timer {
    detail::Reducer* reducer;  // null: does not count as an iteration
    const Clock::time_point began = Clock::now();
    ~Timer() {
      if (reducer) reducer->add_forward_time(Clock::now() - began);
    }
  };

  const std::shared_ptr<detail::Reducer>& reducer() const {
    moved_from_.check("DistributedDataParallel");
    return reducer_;
  }

  // Chooses the module's device, and moves the module there if it is wholly on plain cpu.
  Device choose_device() {
    check<ValueError>(options_.device_ids.size() <= 1,
                      "device_ids can only be None or contain a single element, got ",
                      options_.device_ids.size());
    const std::vector<Tensor> tensors = detail::tensors_of(module_);
    const bool on_host = detail::is_on_host_memory(module_);
    Device device = process_group_.device();
    if (!options_.device_ids.empty()) {
      device = options_.device_ids[0];
      check_device(device);
    } else if (!on_host) {
      device = tensors[0].device();
    }
    if (on_host) lockstep::to(module_, device);
    return device;
  }

  void synchronize_buffers(int root) {
    const std::vector<Buffer> list = this->buffers();
    if (list.empty()) return;
    broadcast_.run(process_group_, {list.begin(), list.end()}, root);
  }

  distributed::ProcessGroup process_group_;
  DistributedDataParallelOptions options_;
  Device device_;
  detail::CoalescedBroadcast broadcast_;
  std::unique_ptr<const detail::ReducerClaims> claims_;
  std::shared_ptr<detail::Reducer> reducer_;
};

}  // namespace lockstep
