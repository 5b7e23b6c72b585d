// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What data_parallel and DataParallel add to replicate and parallel_apply: replicas' memory that
// persists, ReplicaBuffers, and the module itself where only one device has work.
namespace lockstep::detail {

// Averages what replicas have written to the module's buffers (ReplicaBuffers::merged).
class BufferMerge {
 public:
  // Notes the versions of all replicas' buffers. Made before forward.
  template <class M, class Replica>
  BufferMerge(const M& module, Modules<Replica> replicas) : originals_(lockstep::buffers(module)) {
    for (std::size_t i = 0; i < replicas.count; ++i) {
      std::vector<Copy>& copies = copies_.emplace_back();
      for (const Buffer& buffer : lockstep::buffers(replicas[i])) {
        copies.push_back({buffer, buffer.version(), buffer.impl()->replaced});
      }
    }
  }

  // Sets each floating-point buffer that a replica has changed to the replicas' mean, weighted by
  // `weights`. Called after forward.
  void finish(const std::vector<double>& weights) const {
    const NoGradGuard guard;
    for (std::size_t j = 0; j < originals_.size(); ++j) {
      std::vector<Tensor> parts;
      bool changed = false;
      for (const std::vector<Copy>& copies : copies_) {
        parts.push_back(copies[j].buffer);
        changed =
            changed || copies[j].is_replaced() || copies[j].buffer.version() != copies[j].version;
      }
      if (!changed || !is_floating_point(originals_[j].dtype())) continue;
      const Tensor mean = nested::weighted_sum(std::move(parts), weights, originals_[j].device());
      if (copies_[0][j].is_replaced()) {
        originals_[j].set_data(mean);  // the memory may be that of an argument by now
      } else {
        copy_into(originals_[j], mean);
      }
    }
  }

 private:
  struct Copy {
    Buffer buffer;
    std::uint64_t version;
    std::uint32_t replaced;

    // Whether forward has given it other memory, by set_data.
    bool is_replaced() const { return buffer.impl()->replaced != replaced; }
  };

  std::vector<Buffer> originals_;
  std::vector<std::vector<Copy>> copies_;  // [replica][buffer]
};

// The replicas that a call runs; none if one device alone has work and the module itself runs.
template <class M>
using Replicas = std::vector<std::remove_const_t<M>>;

// The steps of one call. They are not in detail itself: unqualified calls of the public functions
// would find them there for a layer with a base class in detail.
namespace one_call {

// replicate for the devices that have work, into the cache's memory if there is a cache. A
// ModuleError unless the module is on the first.
template <class M>
Replicas<M> replicate(M& module, const std::vector<Device>& used, ReplicaCache* cache = nullptr) {
  if (used.size() == 1) {
    check_module_device(module, used[0]);
    return {};
  }
  if (!cache) return lockstep::replicate(module, used);
  const profile::RecordFunction range("replicate");
  const std::vector<Tensor> originals = tensors_of(module);
  check_module_device(module, originals, used[0]);
  return make_replicas(module, originals, cache->refresh(originals, used), used, false);
}

// parallel_apply, with the module's buffers treated as `buffers` asks.
template <class M, class Inputs>
auto parallel_apply(M& module, Replicas<M>& replicas, const Inputs& inputs,
                    ReplicaBuffers buffers) {
  const Modules<M> modules =
      replicas.empty() ? Modules<M>(&module, 1) : Modules<M>(replicas.data(), replicas.size());
  std::optional<BufferMerge> merge;
  if (buffers == ReplicaBuffers::merged && modules.count > 1) {
    merge.emplace(module, modules);
  }
  const auto parts_of = [&inputs](std::size_t i) { return std::tie(inputs.arguments[i]); };
  auto outputs =
      apply_all(modules, inputs.devices(), parts_of, buffers == ReplicaBuffers::synchronized);
  if (merge) merge->finish(nested::row_weights(inputs.rows(), modules.count));
  return outputs;
}

}  // namespace one_call

}  // namespace lockstep::detail
