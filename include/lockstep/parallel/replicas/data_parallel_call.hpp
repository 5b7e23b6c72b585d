// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What data_parallel and DataParallel add to replicate and parallel_apply: ReplicaBuffers, and that
// the module itself runs where one device alone has work.
namespace lockstep::detail {

// The modules that a call runs: replicas or, where one device alone has work, the module itself.
template <class M>
class Replicas : NonCopyable {
 public:
  explicit Replicas(M& module) : modules_(&module, 1) {}
  explicit Replicas(std::vector<std::remove_const_t<M>> replicas)
      : replicas_(std::move(replicas)), modules_(replicas_) {}

  std::span<M> modules() { return modules_; }

 private:
  std::vector<std::remove_const_t<M>> replicas_;
  std::span<M> modules_;
};

// The module itself, where one device alone has work; a ModuleError unless it is on that device.
template <class M>
Replicas<M> only_replica(M& module, Device device) {
  check_module_device(module, device);
  return Replicas<M>(module);
}

// Makes one value of what replicas have written to the module's buffers (ReplicaBuffers::merged).
class BufferMerge {
 public:
  // Made before forward: notes the versions of all replicas' buffers.
  template <class M, class Replica>
  BufferMerge(const M& module, std::span<Replica> replicas) : originals_(buffers(module)) {
    for (const Replica& replica : replicas) {
      versions_.emplace_back();
      for (const Buffer& buffer : copies_.emplace_back(buffers(replica))) {
        versions_.back().push_back(buffer.version());
      }
    }
  }

  // Called after forward: sets each floating-point buffer that a replica has changed to the
  // replicas' mean, weighted with `weights`.
  void finish(const std::vector<double>& weights) const {
    const NoGradGuard guard;
    for (std::size_t j = 0; j < originals_.size(); ++j) {
      std::vector<Tensor> parts;
      bool changed = false;
      for (std::size_t i = 0; i < copies_.size(); ++i) {
        parts.push_back(copies_[i][j]);
        changed = changed || copies_[i][j].version() != versions_[i][j];
      }
      if (!changed || !is_floating_point(originals_[j].dtype())) continue;
      copy_into(originals_[j],
                nested::weighted_sum(std::move(parts), weights, originals_[j].device()));
    }
  }

 private:
  std::vector<Buffer> originals_;
  std::vector<std::vector<Buffer>> copies_;  // [replica][buffer]
  std::vector<std::vector<std::uint64_t>> versions_;
};

// replicate, for the devices that have work: if that is one, the module itself.
template <class M>
Replicas<M> replicate(M& module, const std::vector<Device>& used) {
  if (used.size() == 1) return only_replica(module, used[0]);
  return Replicas<M>(lockstep::replicate(module, used, !is_grad_enabled()));
}

// parallel_apply; then the buffers of `module`, whose replicas these are, are what `buffers` asks
// for.
template <class M, class Inputs>
auto parallel_apply(M& module, Replicas<M>& replicas, const Inputs& inputs,
                    ReplicaBuffers buffers) {
  const std::span<M> modules = replicas.modules();
  std::optional<BufferMerge> merge;
  if (buffers == ReplicaBuffers::merged && modules.size() > 1) {
    merge.emplace(module, modules);
  }
  const auto parts_of = [&inputs](std::size_t i) { return std::tie(inputs.arguments[i]); };
  auto outputs =
      apply_all(modules, inputs.devices(), parts_of, buffers == ReplicaBuffers::synchronized);
  if (merge) merge->finish(nested::row_weights(inputs.rows, modules.size()));
  return outputs;
}

}  // namespace lockstep::detail
