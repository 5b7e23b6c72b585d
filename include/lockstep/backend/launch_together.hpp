// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <typeinfo>
#include <utility>

namespace lockstep::detail {

// What a kernel writes and no other kernel may touch meanwhile: the parameter of an optimiser's
// step, or the result.
template <class F>
const auto& written_by(const F& kernel) {
  if constexpr (requires { kernel.parameter; }) {
    return kernel.parameter;
  } else {
    return kernel.out;
  }
}

// Launches many kernels at once on a GPU, where a launch costs the host more than a small tensor's
// arithmetic costs the GPU. Host devices gain nothing, and run each at once.
//
// Kernels wait here for `launch`, or for an `add` of one that cannot join them: for another stream,
// of another type, writing to the same memory, or one too many. Until then the caller keeps the
// memory behind their Views. If neither is called, they are never launched.
class LaunchTogether : NonCopyable {
 public:
  // As launch_between_teams.
  template <std::size_t unit, class F>
  void add(const Stream& stream, std::size_t count, const F& functor) {
    if (!stream.device().is_cuda()) return launch_between_teams<unit>(stream, count, functor);
    if (count == 0) return;
    using Kernel = TogetherKernel<F>;
    static_assert(sizeof(Kernel) <= sizeof(memory_));
    if (launch_ && (*type_ != typeid(F) || !(*stream_ == stream))) launch();
    auto& waiting = *static_cast<Kernel*>(static_cast<void*>(memory_));
    if (launch_ && (waiting.count == Kernel::kMost || overlaps(waiting, functor))) launch();
    if (count >= kLarge) return launch_between_teams<unit>(stream, count, functor);
    if (!launch_) {
      waiting.count = 0;
      type_ = &typeid(F);
      stream_ = stream;
      launch_ = &launch_waiting<F>;
    }
    waiting.add(functor, count);
  }

  void launch() {
    const auto waiting = std::exchange(launch_, nullptr);
    if (waiting) waiting(*stream_, memory_);
  }

 private:
  // With so many elements, a launch keeps a GPU busy for as long as it takes the host.
  static constexpr std::size_t kLarge = std::size_t{1} << 20;

  template <class F>
  static void launch_waiting(const Stream& stream, const void* memory) {
    const auto& waiting = *static_cast<const TogetherKernel<F>*>(memory);
    if (waiting.count == 1) return lockstep::launch(stream, waiting.size(), waiting.each[0]);
    lockstep::launch(stream, waiting.size(), waiting);
  }

  // Whether a waiting kernel writes what the other one writes.
  template <class F>
  static bool overlaps(const TogetherKernel<F>& waiting, const F& other) {
    const std::less<> before;
    const auto end = [](const auto& view) { return view.data + view.size; };
    const auto& mine = written_by(other);
    for (std::size_t k = 0; k < waiting.count; ++k) {
      const auto& theirs = written_by(waiting.each[k]);
      if (before(theirs.data, end(mine)) && before(mine.data, end(theirs))) return true;
    }
    return false;
  }

  void (*launch_)(const Stream& stream, const void* memory) = nullptr;  // null: nothing waits
  const std::type_info* type_ = nullptr;
  std::optional<Stream> stream_;
  alignas(std::max_align_t) std::byte memory_[kTogetherBytes];
};

}  // namespace lockstep::detail
