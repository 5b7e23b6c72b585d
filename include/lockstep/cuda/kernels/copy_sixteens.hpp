// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

// Several copies within the memory of one GPU by one launch, which costs as much as a copy of some
// hundred KiB.
namespace lockstep::cuda {

using Sixteen = Four<std::uint32_t>;  // bytes

struct CopySixteens {
  View<const Sixteen> from;
  View<Sixteen> to;

  LOCKSTEP_HD void operator()(std::size_t i) const { to[i] = from[i]; }
};

// A launch with few arguments takes the host less time.
using CopyTogether = detail::TogetherKernel<CopySixteens, 512>;

// Whether the copies are of one stream, within its GPU, and of whole sixteens.
inline bool are_sixteens(std::span<const detail::CopyOrder> orders) {
  const detail::StreamState& stream = *orders.front().stream;
  if (!stream.device().is_cuda()) return false;
  for (const detail::CopyOrder& order : orders) {
    const auto is_here = [&stream](Device device) {
      return device.is_cuda() && gpu_of(device) == gpu_of(stream.device());
    };
    const auto ends = reinterpret_cast<std::uintptr_t>(order.dst) |
                      reinterpret_cast<std::uintptr_t>(order.src) | order.bytes();
    if (order.stream != &stream || !is_here(order.dst_device) || !is_here(order.src_device) ||
        !order.shape.is_one_run() || ends % sizeof(Sixteen) != 0) {
      return false;
    }
  }
  return true;
}

// Makes copies that are sixteens, as many at a time as a launch takes.
inline void copy_sixteens(std::span<const detail::CopyOrder> orders) {
  while (!orders.empty()) {
    const auto now = orders.first(std::min(orders.size(), CopyTogether::kMost));
    CopyTogether together;
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

}  // namespace lockstep::cuda
