// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstddef>

namespace lockstep::cuda {

// Memory that only work of one CUDA stream uses: usable by what is issued to it from now on, given
// back behind what has been issued to it when this is destroyed.
class Scratch {
 public:
  Scratch(lockstep::detail::StreamState& stream, std::size_t bytes)
      : stream_(stream), bytes_(bytes), data_(backend().allocate(bytes, stream)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { backend().deallocate(data_, bytes_, stream_, {}); }

  void* data() const { return data_; }

 private:
  static lockstep::detail::Backend& backend() {
    return *lockstep::detail::cuda_backend.load(std::memory_order_acquire);
  }

  lockstep::detail::StreamState& stream_;
  const std::size_t bytes_;
  void* const data_;
};

// The same for elements of T, as kernels take them.
template <class T>
class ScratchOf {
 public:
  ScratchOf(lockstep::detail::StreamState& stream, std::size_t size)
      : memory_(stream, size * sizeof(T)), size_(size) {}

  View<T> view() const { return {static_cast<T*>(memory_.data()), size_}; }
  View<const T> const_view() const { return {static_cast<const T*>(memory_.data()), size_}; }

 private:
  const Scratch memory_;
  const std::size_t size_;
};

}  // namespace lockstep::cuda
