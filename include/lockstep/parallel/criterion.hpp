// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicas/data_parallel_call.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The device of the first defined tensor in output `i`; a ValueError if there is none.
template <class T>
Device device_of_output(const T& output, std::size_t i) {
  std::optional<Device> device;
  const auto look = [&device](const auto& leaf, const nested::Path&) {
    if (!device) device = tensor_traits<std::remove_cvref_t<decltype(leaf)>>::device(leaf);
  };
  nested::for_each_leaf(output, nested::Path("output"), look);
  check<ValueError>(device.has_value(), "DataParallelCriterion: output ", i,
                    " has no tensor in it that is defined");
  return *device;
}

// The criterion's own `reduction` member, or that of the module it wraps; else the mean.
template <class C>
Reduction reduction_of(const C& criterion) {
  if constexpr (requires {
                  { criterion.reduction } -> std::convertible_to<Reduction>;
                }) {
    return criterion.reduction;
  } else if constexpr (HasWrappedModule<C>) {
    return reduction_of(C::wrapped_module(criterion));
  } else {
    return Reduction::mean;
  }
}

template <TensorLike T>
std::uint64_t count_elements(const T& tensor) {
  std::uint64_t count = 1;  // unsigned: sizes may overflow before one that is 0
  for (std::int64_t d = 0; d < tensor_traits<T>::dim(tensor); ++d) {
    count *= static_cast<std::uint64_t>(tensor_traits<T>::size(tensor, d));
  }
  return count;
}

}  // namespace detail

// DataParallel without the gather: returns each replica's output, on that replica's device, in a
// Scattered. With one device or none there is one output. The options output_device and
// scalar_outputs are ignored.
//
// **Torch counterpart.** DataParallelModel of PyTorch-Encoding.
// **Devices and streams.** As DataParallel; no output is moved.
// **Backward.** The gradients of all replicas are summed into the module's parameters.
// **Threads and exceptions.** As DataParallel, but outputs may differ in shape and structure.
template <class M>
class DataParallelModel : public DataParallel<M> {
 public:
  explicit DataParallelModel(M module, std::vector<Device> device_ids = lockstep::devices(),
                             DataParallelOptions options = {})
      : DataParallel<M>(std::move(module), std::move(device_ids), std::move(options)) {}

  DataParallelModel(M module, std::nullopt_t none, DataParallelOptions options = {})
      : DataParallel<M>(std::move(module), none, std::move(options)) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    this->moved_from_.check("DataParallelModel");
    if (this->device_ids().size() > 1) {
      const DataParallelOptions& options = this->options();
      const auto inputs =
          detail::nested::scatter(this->device_ids(), options.dim, options.split, args...);
      auto replicas = detail::one_call::replicate(this->module_, inputs.devices(), &this->cache_);
      return Scattered(
          detail::one_call::parallel_apply(this->module_, replicas, inputs, options.buffers));
    }
    using Output = decltype(this->call_alone(args...));
    std::vector<Output> outputs;
    outputs.push_back(this->call_alone(args...));
    return Scattered(std::move(outputs));
  }
  template <class... Args>
  auto forward(const Args&... args) const {
    return (*this)(args...);
  }
};

// Computes a loss where the outputs are: calls criterion(output i, target i) on each device and
// combines the results into one tensor on the first device.
//
// The reduction is the constructor's `reduction`, or else the criterion's public member `reduction`
// (of the module within, for one with hooks), or else mean. With mean, each device's loss is
// weighted by its share of the rows along `dim`, so chunks of different sizes still give the
// batch's mean; a criterion whose own mean weights rows or leaves some out must return a sum
// instead. With sum, losses are added; with none, they are concatenated.
//
// **Torch counterpart.** DataParallelCriterion of PyTorch-Encoding, which divides by the number of
// devices.
// **Devices and streams.** Targets are scattered to the outputs' devices by the outputs' rows;
// Scattered ones stay as they are. A criterion with parameters is replicated; it must be on the
// first output's device, or wholly on plain `cpu`, from where the first call moves it there.
// **Backward.** Reaches each device's output, and the criterion's parameters.
// **Threads and exceptions.** As parallel_apply; one thread at a time. ValueError for no outputs,
// for targets whose rows are not the outputs', and for an output without a tensor or an undefined
// loss, which it names; ShapeError, unless the reduction is none, for a loss that is not a single
// value; DeviceError for parts of a Scattered target that are not on the outputs' devices;
// ModuleError for a criterion that is elsewhere.
// **Example.** criterion(model(images), labels).backward();
template <class C>
class DataParallelCriterion {
 public:
  explicit DataParallelCriterion(C criterion, std::optional<Reduction> reduction = {},
                                 std::int64_t dim = 0)
      : criterion_(std::move(criterion)), reduction_(reduction), dim_(dim) {
    detail::require_module<C>();
  }

  template <class Output, class... Targets>
  auto operator()(const Scattered<Output>& outputs, const Targets&... targets) {
    check<ValueError>(!outputs.empty(), "DataParallelCriterion: there are no outputs");
    std::vector<Device> devices;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      devices.push_back(detail::device_of_output(outputs[i], i));
    }
    const auto calls = detail::nested::scatter(devices, dim_, Split::chunk, outputs, targets...);
    if (detail::is_on_host_memory(criterion_)) lockstep::to(criterion_, devices[0]);
    auto criteria = lockstep::replicate(criterion_, devices);
    const auto losses = lockstep::parallel_apply(criteria, calls.arguments, devices);
    using Loss = typename decltype(losses)::value_type;
    static_assert(TensorLike<Loss>, "lockstep: a criterion returns one tensor, the loss");
    const Reduction reduction = reduction_.value_or(detail::reduction_of(criterion_));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      check<ValueError>(tensor_traits<Loss>::defined(losses[i]),
                        "DataParallelCriterion: the criterion gave an undefined tensor on ",
                        devices[i], ", replica ", i);
      const std::uint64_t elements = detail::count_elements(losses[i]);
      check<ShapeError>(elements == 1 || reduction == Reduction::none,
                        "DataParallelCriterion: the criterion gave ", elements, " values on ",
                        devices[i], "; expected a single value");
    }
    if (reduction == Reduction::none) return lockstep::gather(losses, devices[0], dim_);
    const detail::nested::ScalarRule rule{reduction, calls.rows()};
    return detail::nested::weighted_sum(losses, rule.weights(losses.size()), devices[0]);
  }
  template <class... Args>
  auto forward(const Args&... args) {
    return (*this)(args...);
  }

  C& module() { return criterion_; }
  const C& module() const { return criterion_; }

 private:
  C criterion_;
  std::optional<Reduction> reduction_;
  std::int64_t dim_;
};

}  // namespace lockstep
