// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/foreign_thread_state.hpp>
#include <lockstep/config.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

// LibTorch's state of a thread goes along wherever lockstep's does: grad and inference mode,
// autocast with its dtypes, hooks on saved tensors, profilers, and the current streams of all GPUs.
namespace lockstep::libtorch::detail {

// What at::ThreadLocalState leaves out.
struct AutocastTypes {
  at::ScalarType cpu = at::autocast::get_autocast_cpu_dtype();
  at::ScalarType gpu = at::autocast::get_autocast_gpu_dtype();
  bool cache = at::autocast::is_autocast_cache_enabled();

  void set() const {
    at::autocast::set_autocast_cpu_dtype(cpu);
    at::autocast::set_autocast_gpu_dtype(gpu);
    at::autocast::set_autocast_cache_enabled(cache);
  }
};

struct ThreadState {
  at::ThreadLocalState state;
  AutocastTypes autocast;
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
    autocast.set();
    if (streams.empty()) return;
    const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
    for (const c10::Stream stream : streams) cuda.exchangeStream(stream);
  }
};

// Sets a state until destroyed.
class ThreadStateScope {
 public:
  explicit ThreadStateScope(const ThreadState& state) { state.set(); }
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;
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
