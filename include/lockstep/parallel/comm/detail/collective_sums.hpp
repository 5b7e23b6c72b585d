// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <list>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

// Whether a collective adds up tensors of a dtype. Half precision is missing on purpose: the
// library sums it in f32 and rounds once.
constexpr bool is_summed_together(Dtype dtype) {
  return dtype == Dtype::i32 || dtype == Dtype::i64 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

// Collects sums over one list of devices, which NCCL (lockstep/nccl.hpp) then makes together, as
// one collective.
//
// Devices and streams: the collective is work of each device's current stream. The summands are
// made and the total is used on these streams, so nothing else has to be ordered.
class CollectiveSums : lockstep::detail::NonCopyable {
 public:
  // Adds total := the sum of the inputs and returns true; returns false if a collective cannot make
  // that sum, or not together with those added before, which have other devices. The inputs have
  // been checked; the total is new, and the caller keeps it until `issue`.
  bool add(const Tensor& total, std::span<const Tensor> inputs) {
    if (!distributed::detail::nccl_collectives.load(std::memory_order_acquire)) return false;
    if (!is_summed_together(total.dtype()) || total.numel() == 0) return false;
    // NCCL may read where it is what another allocator has opened to no other GPU.
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
  std::list<void*> memory_;     // to which the calls refer
  std::vector<distributed::detail::GpuCall> calls_;
};

}  // namespace lockstep::comm::detail
