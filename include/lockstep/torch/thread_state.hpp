// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/foreign_thread_state.hpp>
#include <lockstep/config.hpp>
#include <lockstep/non_copyable.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <memory>
#include <vector>

// Passes LibTorch's thread state on together with lockstep's: grad and inference mode, autocast
// with its dtypes, hooks on saved tensors, profilers, and the current streams of all GPUs.
namespace lockstep::libtorch::detail {

// Autocast's dtypes. Before 2.4 LibTorch has a function for each device.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
inline at::ScalarType cpu_autocast() { return at::autocast::get_autocast_dtype(at::kCPU); }
inline at::ScalarType gpu_autocast() { return at::autocast::get_autocast_dtype(at::kCUDA); }
inline void set_autocast(at::ScalarType cpu, at::ScalarType gpu) {
  at::autocast::set_autocast_dtype(at::kCPU, cpu);
  at::autocast::set_autocast_dtype(at::kCUDA, gpu);
}
#else
inline at::ScalarType cpu_autocast() { return at::autocast::get_autocast_cpu_dtype(); }
inline at::ScalarType gpu_autocast() { return at::autocast::get_autocast_gpu_dtype(); }
inline void set_autocast(at::ScalarType cpu, at::ScalarType gpu) {
  at::autocast::set_autocast_cpu_dtype(cpu);
  at::autocast::set_autocast_gpu_dtype(gpu);
}
#endif

struct ThreadState {
  at::ThreadLocalState state;
  // What `state` does not include.
  at::ScalarType on_cpu = cpu_autocast();
  at::ScalarType on_gpu = gpu_autocast();
  bool caches = at::autocast::is_autocast_cache_enabled();
  std::vector<c10::Stream> streams = current_streams();

  static std::vector<c10::Stream> current_streams() {
    std::vector<c10::Stream> streams;
    if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return streams;
    const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
    for (at::DeviceIndex i = 0; i < cuda.deviceCount(); ++i) {
      streams.push_back(cuda.getStream({at::kCUDA, i}));
    }
    return streams;
  }

  void set() const {
    at::ThreadLocalState::setThreadLocalState(state);
    set_autocast(on_cpu, on_gpu);
    at::autocast::set_autocast_cache_enabled(caches);
    if (streams.empty()) return;
    const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
    for (const c10::Stream stream : streams) cuda.exchangeStream(stream);
  }
};

// Sets a state until destroyed.
class ThreadStateScope : lockstep::detail::NonCopyable {
 public:
  explicit ThreadStateScope(const ThreadState& state) { state.set(); }
  ~ThreadStateScope() { before_.set(); }

 private:
  const ThreadState before_;
};

// Made with the program's other static objects, before main.
inline lockstep::detail::ForeignThreadState thread_state(
    [] { return lockstep::detail::ForeignThreadState::Handle(std::make_shared<ThreadState>()); },
    [](const lockstep::detail::ForeignThreadState::Handle& captured) {
      return lockstep::detail::ForeignThreadState::Handle(
          std::make_shared<ThreadStateScope>(*static_cast<const ThreadState*>(captured.get())));
    });

}  // namespace lockstep::libtorch::detail
