// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/backend/launch_together.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/sparse_sum.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

inline bool is_sparse(const Tensor& tensor) { return tensor.is_sparse(); }

// Whether kernels on `reader` can read the tensor where it is. Memory lent on another GPU belongs
// to an allocator that may not have given others access.
inline bool is_within_reach(const Tensor& tensor, Device reader) {
  const Device owner = tensor.device();
  return owner == reader || (lockstep::detail::can_access(reader, owner) &&
                             !(owner.is_cuda() && tensor.impl()->storage->is_lent()));
}

// The tensor where kernels on `compute` can read it: itself if it is contiguous and accessible,
// otherwise a copy, which is put into `kept`.
inline const Tensor& readable(const Tensor& tensor, const Stream& compute, Tensor& kept) {
  const Device destination = compute.device();
  if (!tensor.is_contiguous()) kept = lockstep::detail::packed(tensor);
  const Tensor& source = kept.defined() ? kept : tensor;
  if (source.device() == destination) return source;
  if (!is_within_reach(source, destination)) {
    return kept = broadcast(source, {destination})[0];
  }
  compute.wait_stream(current_stream(source.device()));
  source.record_stream(compute);
  return source;
}

LOCKSTEP_INLINE void check_summands(const char* operation, Summands inputs, Device destination) {
  check<ValueError>(!inputs.empty(), operation, ": expected at least one input");
  const Shape& shape = inputs[0].sizes();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    check<ShapeError>(inputs[i].sizes() == shape, operation, ": input ", i,
                      " has invalid size: got ", inputs[i].sizes(), ", but expected ", shape);
    check<DtypeError>(inputs[i].dtype() == inputs[0].dtype(), operation, ": input ", i,
                      " has dtype ", inputs[i].dtype(), ", but expected ", inputs[0].dtype());
  }
  check<DeviceError>(
      lockstep::detail::any_of(inputs,
                               [&](const Tensor& input) { return input.device() == destination; }),
      operation,
      " expects destination to be on the same device with one of the tensors, but none is on ",
      destination);
}

// Makes one addition of a sum: total := inputs[0] + inputs[1] if i is 1, else total + inputs[i].
// `stream` is the current one of the total's device. With `together`, the addition is collected
// there and reads the inputs where they are; the caller has made `stream` wait for them.
inline void add_input(const Tensor& total, Summands inputs, std::size_t i, const Stream& stream,
                      lockstep::detail::LaunchTogether* together) {
  using lockstep::detail::input;
  dispatch_numeric(total.dtype(), "reduce_add", [&]<class T>(T) {
    Tensor first_copy;
    Tensor next_copy;
    const auto operand = [&](std::size_t k, Tensor& kept) {
      return input<T>(together ? inputs[k] : readable(inputs[k], stream, kept));
    };
    const View<const T> before = i == 1 ? operand(0, first_copy) : input<T>(total);
    const View<const T> next = operand(i, next_copy);
    const lockstep::detail::BinaryKernel<T, T, lockstep::detail::Plus<T>> kernel{
        before, next, lockstep::detail::output<T>(total, stream), {}};
    const auto count = static_cast<std::size_t>(total.numel());
    if (together) {
      together->add<sizeof(T)>(stream, count, kernel);
    } else {
      launch_in_pieces<sizeof(T)>(stream, count, kernel);
    }
  });
}

// Sets total to the sum of the inputs, added in order; half precision in f32, rounded once.
// `stream` is the current one of the total's device.
inline void sum_into(const Tensor& total, Summands inputs, const Stream& stream) {
  if (inputs.size() == 1) return lockstep::detail::copy_into(total, inputs[0]);
  if (lockstep::detail::is_half_precision(total.dtype())) {
    std::vector<Tensor> wide;
    for (const Tensor& each : inputs) wide.push_back(lockstep::detail::widened(each));
    const Tensor sum = lockstep::detail::empty_on(stream, total.sizes(), Dtype::f32);
    sum_into(sum, wide, stream);
    return lockstep::detail::copy_into(total, sum);
  }
  for (std::size_t i = 1; i < inputs.size(); ++i) add_input(total, inputs, i, stream, nullptr);
}

// Collects sums on a GPU whose kernels can read the summands in place, and makes them together: one
// launch adds the next summand of every sum.
class SumsTogether {
 public:
  // Adds total := the sum of the inputs and returns true, or returns false if that sum must be made
  // alone. The caller keeps both until `issue`.
  bool add(const Tensor& total, Summands inputs) {
    const Device here = total.device();
    const auto is_readable = [here](const Tensor& input) {
      return input.is_contiguous() && is_within_reach(input, here);
    };
    if (!here.is_cuda() || inputs.size() < 2 ||
        lockstep::detail::is_half_precision(total.dtype()) ||
        !lockstep::detail::all_of(inputs, is_readable)) {
      return false;
    }
    sums_.emplace_back(&total, inputs);
    most_ = std::max(most_, inputs.size());
    return true;
  }

  // Issues the additions to the current stream of the totals' device, those of one dtype together.
  void issue(const Stream& stream) {
    const auto dtype_before = [](const auto& a, const auto& b) {
      return a.first->dtype() < b.first->dtype();
    };
    std::stable_sort(sums_.begin(), sums_.end(), dtype_before);
    for (const auto& [total, inputs] : sums_) {
      for (const Tensor& input : inputs) order_read(input, stream);
    }
    lockstep::detail::LaunchTogether together;
    for (std::size_t i = 1; i < most_; ++i) {
      for (const auto& [total, inputs] : sums_) {
        if (i < inputs.size()) add_input(*total, inputs, i, stream, &together);
      }
    }
    together.launch();
  }

 private:
  // Waits once per device: no source is written between two calls.
  void order_read(const Tensor& source, const Stream& compute) {
    if (source.device() == compute.device()) return;
    if (lockstep::detail::find(waited_, source.device()) == waited_.end()) {
      compute.wait_stream(current_stream(source.device()));
      waited_.push_back(source.device());
    }
    source.record_stream(compute);
  }

  std::vector<std::pair<const Tensor*, Summands>> sums_;
  std::vector<Device> waited_;
  std::size_t most_ = 0;  // summands of a sum
};

// Whether a collective may sum a dtype. Half precision is missing on purpose: it is summed in f32
// and rounded once.
constexpr bool has_collective_sum(Dtype dtype) {
  return dtype == Dtype::i32 || dtype == Dtype::i64 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

// Collects sums over one list of devices, which NCCL (lockstep/nccl.hpp) then makes in one
// collective.
//
// Devices and streams: the collective runs on each device's current stream, where the summands are
// made and the total is used, so nothing else needs ordering.
class CollectiveSums : lockstep::detail::NonCopyable {
 public:
  // Adds total := the sum of the inputs and returns true, or returns false if a collective cannot
  // make that sum, or not together with the earlier ones, which are on other devices. The inputs
  // are checked; the total is new, and the caller keeps it until `issue`.
  bool add(const Tensor& total, std::span<const Tensor> inputs) {
    if (!distributed::detail::nccl_collectives.load(std::memory_order_acquire)) return false;
    if (!has_collective_sum(total.dtype()) || total.numel() == 0) return false;
    // NCCL may read from other GPUs, which another allocator may not have given access.
    const auto is_lent = [](const Tensor& input) { return input.impl()->storage->is_lent(); };
    if (lockstep::detail::any_of(inputs, is_lent)) return false;
    std::vector<Device> devices;
    for (const Tensor& input : inputs) devices.push_back(input.device());
    const auto at = lockstep::detail::find(devices, total.device());
    const auto root = static_cast<std::size_t>(at - devices.begin());
    if (calls_.empty()) {
      collectives_ = distributed::detail::collectives_for(devices);
      if (!collectives_) return false;
      devices_ = std::move(devices);
      root_ = root;
    } else if (devices != devices_ || root != root_) {
      return false;
    }
    distributed::detail::GpuCall& call = calls_.emplace_back();
    call.call = {.collective = distributed::detail::Collective::reduce,
                 .dtype = total.dtype(),
                 .root = static_cast<int>(root),
                 .count = static_cast<std::size_t>(total.numel())};
    for (const Tensor& input : inputs) {
      const Tensor& summand = inputs_.emplace_back(lockstep::detail::packed(input));
      void* const& from = memory_.emplace_back(summand.impl()->data());
      call.parts.push_back({current_stream(input.device()), {&from, 1}, {}});
    }
    void* const& to = memory_.emplace_back(total.impl()->data());
    call.parts[root].outputs = {&to, 1};
    return true;
  }

  // Issues the collective; does nothing if no sum was added.
  void issue() const {
    if (!calls_.empty()) collectives_->run(calls_);
  }

 private:
  distributed::detail::GpuCollectives* collectives_ = nullptr;
  std::vector<Device> devices_;
  std::size_t root_ = 0;
  std::vector<Tensor> inputs_;  // contiguous; kept while this lives
  std::list<void*> memory_;     // what the calls point to
  std::vector<distributed::detail::GpuCall> calls_;
};

// Whether the sum may be made in the memory of the first summand: `destination` is a host device,
// and the first summand is there, contiguous, not of half precision, and has no other owner.
inline bool may_hold_sum(Summands inputs, Device destination) {
  const Tensor& first = inputs[0];
  return destination.is_cpu() && first.device() == destination && first.is_contiguous() &&
         !lockstep::detail::is_half_precision(first.dtype()) &&
         lockstep::detail::is_sole_owner(first);
}

LOCKSTEP_INLINE void sum_lists(std::vector<Tensor>& sums, std::vector<Summands> summands,
                               Device destination, std::size_t buffer_size, bool takes_over) {
  std::vector<std::vector<Tensor>> dense;  // lists whose sparse tensors were made dense
  std::vector<Tensor> likes;               // the first summand of each sum that needs memory
  std::vector<std::size_t> indices;        // the indices of these sums
  bool any_dense = false;
  for (std::size_t j = 0; j < sums.size(); ++j) {
    if (summands[j].empty()) continue;
    if (lockstep::detail::any_of(summands[j], is_sparse)) [[unlikely]] {
      std::vector<Tensor> mine(summands[j].begin(), summands[j].end());
      if (lockstep::detail::all_of(mine, is_sparse)) {
        sums[j] = lockstep::detail::concatenated(mine, destination);
        summands[j] = {};
        continue;
      }
      for (Tensor& each : mine) each = each.to_dense();
      summands[j] = dense.emplace_back(std::move(mine));
    }
    any_dense = true;
    if (takes_over && may_hold_sum(summands[j], destination)) {
      sums[j] = summands[j][0];
    } else {
      likes.push_back(summands[j][0]);
      indices.push_back(j);
    }
  }
  if (!any_dense) return;
  const Stream stream = current_stream(destination);
  if (!likes.empty()) {
    FlatCopies flat = allocate_groups(stream, likes, take_tensors(likes, buffer_size));
    for (std::size_t p = 0; p < indices.size(); ++p) sums[indices[p]] = std::move(flat.parts[p]);
  }
  const profile::RecordFunction range("reduce", destination);
  CollectiveSums collective;
  SumsTogether together;
  for (std::size_t j = 0; j < sums.size(); ++j) {
    if (summands[j].empty() || collective.add(sums[j], summands[j])) continue;
    if (!together.add(sums[j], summands[j])) sum_into(sums[j], summands[j], stream);
  }
  together.issue(stream);
  collective.issue();
}

}  // namespace lockstep::comm::detail

namespace lockstep::comm {

LOCKSTEP_INLINE Tensor reduce_add(const std::vector<Tensor>& inputs,
                                  std::optional<Device> destination) {
  check<ValueError>(!inputs.empty(), "reduce_add: expected at least one input");
  const Device target = destination.value_or(inputs[0].device());
  detail::check_summands("reduce_add", inputs, target);
  std::vector<Tensor> sums(1);
  detail::sum_lists(sums, {inputs}, target, 0, /*takes_over=*/false);
  return sums[0];
}

LOCKSTEP_INLINE std::vector<Tensor> reduce_add_coalesced(
    const std::vector<std::vector<Tensor>>& inputs, std::optional<Device> destination,
    std::size_t buffer_size) {
  check<ValueError>(!inputs.empty(), "reduce_add_coalesced: expected at least one list of tensors");
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    check<ValueError>(inputs[i].size() == inputs[0].size(), "reduce_add_coalesced: list ", i,
                      " has ", inputs[i].size(), " tensors, but list 0 has ", inputs[0].size());
  }
  if (inputs[0].empty()) return {};
  const Device target = destination.value_or(inputs[0][0].device());
  std::vector<Tensor> parts;  // those of each sum together
  std::vector<detail::Summands> summands;
  parts.reserve(inputs.size() * inputs[0].size());
  for (std::size_t j = 0; j < inputs[0].size(); ++j) {
    for (const auto& of_device : inputs) parts.push_back(of_device[j]);
    summands.push_back(std::span(parts).last(inputs.size()));
    detail::check_summands("reduce_add_coalesced", summands[j], target);
  }
  std::vector<Tensor> sums(summands.size());
  detail::sum_lists(sums, std::move(summands), target, buffer_size, /*takes_over=*/false);
  return sums;
}

}  // namespace lockstep::comm
