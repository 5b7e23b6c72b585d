// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/peer_access.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

// Several copies to one GPU, from its own memory or from what its kernels read where it is, by one
// launch, which costs as much as a copy of some hundred KiB.
namespace lockstep::cuda {

using Sixteen = Four<std::uint32_t>;  // bytes

struct CopySixteens {
  View<const Sixteen> from;
  View<Sixteen> to;

  LOCKSTEP_HD void operator()(std::size_t i) const { to[i] = from[i]; }
};

// Few copies, and many: a launch with few arguments takes the host less time.
using CopyFew = detail::TogetherKernel<CopySixteens, 512>;
using CopyMany = detail::TogetherKernel<CopySixteens>;

// From another GPU, in bytes: a larger copy keeps the way between the two busy by itself.
inline constexpr std::size_t kLargeBetweenGpus = std::size_t{1} << 20;

// Whether a kernel makes this copy: one run of whole sixteens, to the GPU of its stream.
inline bool is_sixteens(const detail::CopyOrder& order) {
  const Device here = order.stream->device();
  if (!here.is_cuda() || !order.dst_device.is_cuda() || !order.src_device.is_cuda()) return false;
  const auto ends = reinterpret_cast<std::uintptr_t>(order.dst) |
                    reinterpret_cast<std::uintptr_t>(order.src) | order.bytes();
  if (!order.shape.is_one_run() || ends % sizeof(Sixteen) != 0) return false;
  if (gpu_of(order.dst_device) != gpu_of(here)) return false;
  return gpu_of(order.src_device) == gpu_of(here) ||
         (!order.src_is_lent && order.bytes() < kLargeBetweenGpus &&
          PeerAccess::instance().can_access(here, order.src_device));
}

// Makes copies that are sixteens and of one stream, as many at a time as a launch takes.
template <class Together>
void copy_sixteens(std::span<const detail::CopyOrder> orders) {
  while (!orders.empty()) {
    const auto now = orders.first(std::min(orders.size(), Together::kMost));
    Together together;
    together.count = 0;
    for (const detail::CopyOrder& order : now) {
      const std::size_t count = order.bytes() / sizeof(Sixteen);
      together.add({{static_cast<const Sixteen*>(order.src), count},
                    {static_cast<Sixteen*>(order.dst), count}},
                   count);
    }
    launch(Stream(*now.front().stream), together.size(), together);
    orders = orders.subspan(now.size());
  }
}

inline void copy_sixteens(std::span<const detail::CopyOrder> orders) {
  orders.size() > CopyFew::kMost ? copy_sixteens<CopyMany>(orders) : copy_sixteens<CopyFew>(orders);
}

}  // namespace lockstep::cuda
