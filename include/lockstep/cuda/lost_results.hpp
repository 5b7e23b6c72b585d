// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep::cuda {

// Remembers the GPUs that have gone on without a result: streams wait for what a collective gives,
// and if it is given up they go on with whatever is in its memory. Nobody can tell which numbers
// come of that, so every wait of the host for such a GPU throws, until the program calls `forget`.
//
// Threads: any.
class LostResults {
 public:
  // Throws an exception with this text, or one that says that there was no memory for it.
  using Raise = void (*)(const std::string* text);

  // Notes the reason for a GPU, which exists; the first one stays. `text` is null if there was no
  // memory for it; this itself needs none.
  static void note(Device device, std::shared_ptr<const std::string> text, Raise raise) noexcept {
    Place& place = of(device);
    const std::lock_guard lock(place.mutex);
    if (place.any) return;
    place.text = std::move(text);
    place.raise = raise;
    place.any.store(true, std::memory_order_release);
  }

  // Throws the reason if there is one, each time a new exception, since any threads may catch it.
  // Called after the host has waited for the device.
  static void check(Device device) {
    Place& place = of(device);
    if (!place.any.load(std::memory_order_acquire)) [[likely]]
      return;
    const std::lock_guard lock(place.mutex);
    if (!place.any) return;
    place.raise(place.text.get());
  }

  static void forget(Device device) {
    Place& place = of(device);
    const std::lock_guard lock(place.mutex);
    place.any.store(false, std::memory_order_relaxed);
    place.text = nullptr;
  }

 private:
  struct Place {
    std::atomic<bool> any{false};  // written under the mutex
    std::mutex mutex;              // guards the rest
    std::shared_ptr<const std::string> text;
    Raise raise = nullptr;
  };

  static Place& of(Device device) { return per_gpu<Place>(device); }
};

}  // namespace lockstep::cuda
