// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/scatter_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What data_parallel and DataParallel add to scatter, replicate, parallel_apply and gather: the
// options, and the case that one device alone has work.
namespace lockstep::detail {

// The modules that a call runs: replicas or, where one device alone has work, the module itself.
template <class M>
class Replicas {
 public:
  explicit Replicas(M& module) : modules_(&module, 1) {}
  explicit Replicas(std::vector<std::remove_const_t<M>> replicas)
      : replicas_(std::move(replicas)), modules_(replicas_) {}
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  std::span<M> modules() { return modules_; }

 private:
  std::vector<std::remove_const_t<M>> replicas_;
  std::span<M> modules_;
};

// Brings together what replicas have made of the module's buffers.
class BufferMerge {
 public:
  // Before forward.
  template <class M, class Replica>
  BufferMerge(const M& module, std::span<Replica> replicas) : originals_(buffers(module)) {
    for (const Replica& replica : replicas) {
      versions_.emplace_back();
      for (const Buffer& buffer : copies_.emplace_back(buffers(replica))) {
        versions_.back().push_back(buffer.version());
      }
    }
  }

  // After forward.
  void finish(const std::vector<double>& weights) const;

 private:
  std::vector<Buffer> originals_;
  std::vector<std::vector<Buffer>> copies_;  // [replica][buffer]
  std::vector<std::vector<std::uint64_t>> versions_;
};

// scatter of all arguments of a call, by one plan.
template <class... Args>
nested::Calls<Args...> scatter_call(const std::vector<Device>& device_ids,
                                    const DataParallelOptions& options, const Args&... args) {
  return nested::scatter_arguments(device_ids, options.dim, options.split, args...);
}

// parallel_apply; then `module`, whose replicas these are, has the buffers that the options say.
template <class M, class Inputs>
auto parallel_apply_call(M& module, Replicas<M>& replicas, const Inputs& inputs,
                         const DataParallelOptions& options) {
  const std::span<M> modules = replicas.modules();
  std::optional<BufferMerge> merge;
  if (options.buffers == ReplicaBuffers::merged && modules.size() > 1) {
    merge.emplace(module, modules);
  }
  const auto parts_of = [&inputs](std::size_t i) { return std::tie(inputs.arguments[i]); };
  auto outputs = apply_all(modules, inputs.devices(), parts_of,
                           options.buffers == ReplicaBuffers::synchronized);
  if (merge) merge->finish(nested::row_weights(inputs.rows, modules.size()));
  return outputs;
}

// gather of the outputs for `inputs`; scalars come together as the options say.
template <class Output, class Inputs>
Gathered<Output> gather_call(const std::vector<Output>& outputs, const Inputs& inputs,
                             Device target, const DataParallelOptions& options) {
  return nested::gather_parts(outputs, target, options.dim, {options.scalar_outputs, inputs.rows});
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/data_parallel_call.ipp>
#endif
