// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>

namespace lockstep::detail {

// Memory that only work of one CUDA stream uses: usable by what is issued to it from now on, given
// back behind what has been issued to it when this is destroyed.
class GpuScratch : NonCopyable {
 public:
  GpuScratch(StreamState& stream, std::size_t bytes)
      : stream_(stream), bytes_(bytes), data_(backend().allocate(bytes, stream)) {}
  ~GpuScratch() { backend().deallocate(data_, bytes_, stream_, {}); }

  void* data() const { return data_; }

 private:
  static Backend& backend() { return *cuda_backend.load(std::memory_order_acquire); }

  StreamState& stream_;
  const std::size_t bytes_;
  void* const data_;
};

}  // namespace lockstep::detail
