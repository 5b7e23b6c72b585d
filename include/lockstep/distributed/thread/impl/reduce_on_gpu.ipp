// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <span>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void copy_between(const GpuMemory& to, const GpuMemory& from, std::size_t bytes,
                                  const Stream& stream) {
  if (bytes == 0 || (to.data == from.data && to.device == from.device)) return;
  lockstep::detail::backend_of(stream.device())
      .copy({to.data, to.device, from.data, from.device, {bytes}, &stream.state()});
}

LOCKSTEP_INLINE void reduce_on_gpu(const Stream& stream, Dtype dtype, ReduceOp op,
                                   std::span<const GpuMemory> inputs,
                                   std::span<const GpuMemory> outputs, std::size_t begin,
                                   std::size_t end) {
  if (begin == end) return;
  dispatch_all(dtype,
               [&]<class T>(T) { GpuReduction<T>(stream, begin, end).run(op, inputs, outputs); });
}

}  // namespace lockstep::distributed::detail
