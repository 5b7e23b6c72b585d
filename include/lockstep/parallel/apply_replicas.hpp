// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/data_parallel_options.hpp>
#include <lockstep/parallel/leaves.hpp>
#include <lockstep/parallel/move_to.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/scatter_plan.hpp>
#include <lockstep/parallel/scatterable.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// What data_parallel and DataParallel are made of: the calls for no device, one, and several.
namespace lockstep::detail {

void check_devices(const std::vector<Device>& devices);

// The module's own result, with the arguments as they are.
template <class M, class... Args>
auto call_as_it_is(M& module, const Args&... args) {
  return forward_part(module, std::tie(nested::undivided(args)...));
}

// Those of a Scattered have to be on the device already, as they have where there are several.
template <class T>
void check_part_on(const T& /*argument*/, Device /*device*/, const nested::Path& /*path*/) {}
template <class T>
void check_part_on(const Scattered<T>& argument, Device device, const nested::Path& path) {
  const auto look = [device](const auto& leaf, const nested::Path& where) {
    const Device actual = tensor_traits<std::remove_cvref_t<decltype(leaf)>>::device(leaf);
    nested::check_part_device(0, actual, device, where);
  };
  nested::for_each_leaf(nested::undivided(argument), path, look);
}

// The module's own result, with the arguments moved to its device.
template <class M, class... Args>
auto call_on(M& module, Device device, const Args&... args) {
  nested::require_scatterable_arguments<Args...>();
  if constexpr (nested::ScatterableArguments<Args...>) {
    check_module_device(module, device);
    [[maybe_unused]] std::size_t index = 0;
    const nested::Path root("args");
    (check_part_on(args, device, nested::Path(root, index++)), ...);
    const profile::RecordFunction range("apply", device);
    return forward_part(module, std::tuple<typename nested::PartOf<Args>::Type...>(
                                    nested::on_device(args, device)...));
  } else {
    return Tensor();
  }
}

// What each replica returned, where it was made, and how many rows it was given (empty: no argument
// had rows).
template <class Output>
struct Outputs {
  std::vector<Output> outputs;
  std::vector<std::int64_t> rows;
};

// Brings together what replicas have made of the module's buffers.
class BufferMerge {
 public:
  // Before forward.
  template <class M>
  BufferMerge(const M& module, const std::vector<M>& replicas) : originals_(buffers(module)) {
    for (const M& replica : replicas) {
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

// scatter, replicate, parallel_apply: one output for each device that has work. `make` gives the
// replicas for those devices; where only one has, the module itself is called.
template <class M, class MakeReplicas, class... Args>
auto apply_replicas(M& module, const std::vector<Device>& device_ids,
                    const DataParallelOptions& options, MakeReplicas make, const Args&... args) {
  check_module_device(module, device_ids[0]);
  auto calls = nested::scatter_arguments(device_ids, options.dim, options.split, args...);
  if constexpr (sizeof...(Args) == 0) calls.arguments.resize(1);  // nothing to divide: one call
  using Output = std::remove_cvref_t<decltype(forward_part(module, calls.arguments[0]))>;
  Outputs<Output> result{{}, std::move(calls.rows)};
  const std::size_t count = calls.arguments.size();
  if (count == 1) {
    const LoneReplicaScope alone;
    const profile::RecordFunction range("apply", device_ids[0]);
    result.outputs.push_back(forward_part(module, calls.arguments[0]));
    return result;
  }
  std::vector<Device> fewer;
  if (count < device_ids.size()) {
    fewer.assign(device_ids.begin(), device_ids.begin() + static_cast<std::ptrdiff_t>(count));
  }
  const std::vector<Device>& used = fewer.empty() ? device_ids : fewer;
  auto replicas = make(used);
  std::optional<BufferMerge> merge;
  if (options.buffers == ReplicaBuffers::merged) merge.emplace(module, replicas);
  const auto parts_of = [&](std::size_t i) { return std::tie(calls.arguments[i]); };
  result.outputs =
      apply_all(replicas, used, parts_of, options.buffers == ReplicaBuffers::synchronized);
  if (merge) merge->finish(nested::row_weights(result.rows, count));
  return result;
}

// The outputs of apply_replicas together on `target`.
template <class Output>
Gathered<Output> gather_outputs(const Outputs<Output>& results, Device target,
                                const DataParallelOptions& options) {
  return nested::gather_parts(results.outputs, target, options.dim,
                              {options.scalar_outputs, results.rows});
}

// What one module alone returned keeps its shape; it is moved if it has to be elsewhere.
template <class Output>
Gathered<Output> gather_one(Output output, std::optional<Device> target) {
  if constexpr (nested::PlainValue<Output>) {
    return {std::move(output)};
  } else {
    if (target) nested::move_to(output, *target);
    return output;
  }
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/apply_replicas.ipp>
#endif
