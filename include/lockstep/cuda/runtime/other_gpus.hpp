// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/cuda/runtime/per_device.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::cuda {

// What the streams of each GPU have waited for on other GPUs and nobody has seen to have ended.
//
// When a GPU fails, those that wait for it go on, with whatever is in memory. Its own streams tell
// that to who waits for them on the host; the streams of the others do not. So who has waited for a
// GPU asks those, too, on whose work its work rests.
//
// Threads: any.
class OtherGpus {
 public:
  // A point in the work of a GPU's stream, whose points are numbered in order.
  struct Point {
    Device device;
    const detail::StreamState* stream;
    std::uint64_t number;
    detail::EventPtr event;
  };

  // Notes that work of `device` rests on what comes before the point, and on all that the point's
  // GPU rests on.
  static void rely(Device device, const Point& point) {
    if (gpu_of(device) != gpu_of(point.device)) rely({&device, 1}, {&point, 1});
  }

  // The same for each of some devices and all of the points, as after a collective. (Pair by pair,
  // all that one rests on would be copied and looked up for each of the others.)
  static void rely(std::span<const Device> devices, std::span<const Point> points) {
    std::vector<Point> all(points.begin(), points.end());
    for (const Point& point : points) of(point.device).add_to(all);
    for (const Device device : devices) of(device).add(all, gpu_of(device));
  }

  // Throws a CudaError if a GPU on whose work that of `device` rests has failed. Called after the
  // host has waited for the device.
  static void check(Device device) {
    Place& place = of(device);
    if (!place.any.load(std::memory_order_acquire)) [[likely]]
      return;
    const std::lock_guard lock(place.mutex);
    std::vector<Point>& points = place.points;
    for (std::size_t i = 0; i < points.size();) {
      if (has_ended(points[i], device)) {
        points[i] = std::move(points.back());
        points.pop_back();
      } else {
        ++i;
      }
    }
    place.any.store(!points.empty(), std::memory_order_release);
  }

 private:
  struct Place {
    void add_to(std::vector<Point>& all) {
      if (!any.load(std::memory_order_acquire)) return;
      const std::lock_guard lock(mutex);
      for (const Point& point : points) add_one(all, point);
    }
    // But for those of `gpu`, which is this place's.
    void add(const std::vector<Point>& more, int gpu) {
      const std::lock_guard lock(mutex);
      for (const Point& point : more) {
        if (gpu_of(point.device) != gpu) add_one(points, point);
      }
      any.store(!points.empty(), std::memory_order_release);
    }
    // The last point of a stream stands for those before it.
    static void add_one(std::vector<Point>& to, const Point& point) {
      const auto same = [&point](const Point& each) { return each.stream == point.stream; };
      const auto found = std::find_if(to.begin(), to.end(), same);
      if (found == to.end()) {
        to.push_back(point);
      } else if (found->number < point.number) {
        *found = point;
      }
    }

    std::atomic<bool> any{false};  // written under the mutex
    std::mutex mutex;              // guards the rest
    std::vector<Point> points;
  };

  static bool has_ended(const Point& point, Device device) {
    try {
      return point.event->query();
    } catch (const CudaError& error) {
      if (!is_sticky(static_cast<cudaError_t>(error.code()))) throw;
      throw CudaError(detail::str("what ", device, " has computed may rest on work of ",
                                  point.device, ", which has failed: ", error.what()),
                      error.code());
    }
  }

  static Place& of(Device device) { return per_gpu<Place>(device); }
};

}  // namespace lockstep::cuda
