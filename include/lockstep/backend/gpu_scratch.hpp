// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>

namespace lockstep::detail {

// Memory for the work of one CUDA stream only, issued to it between this object's construction and
// destruction.
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
