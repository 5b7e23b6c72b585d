// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/gpu_scratch.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>

#include <cstddef>

namespace lockstep::cuda {

using detail::GpuScratch;

// A GpuScratch for elements of T, as kernels take them.
template <class T>
class ScratchOf {
 public:
  ScratchOf(detail::StreamState& stream, std::size_t size)
      : memory_(stream, size * sizeof(T)), size_(size) {}

  View<T> view() const { return {static_cast<T*>(memory_.data()), size_}; }
  View<const T> const_view() const { return {static_cast<const T*>(memory_.data()), size_}; }

 private:
  const GpuScratch memory_;
  const std::size_t size_;
};

}  // namespace lockstep::cuda
