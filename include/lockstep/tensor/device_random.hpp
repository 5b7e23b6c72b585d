// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

// Random numbers that a kernel or a replica draws where it needs them.
namespace lockstep::detail {

// SplitMix64's output function (Steele, Lea and Flood, 2014).
LOCKSTEP_HD constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15U;

// The numbers of a sequence from number `first` on. A kernel may draw them in any order, since the
// state of SplitMix64 is a counter.
struct RandomRange {
  std::uint64_t key = 0;
  std::uint64_t first = 0;

  LOCKSTEP_HD std::uint64_t bits(std::size_t i) const {
    return mix_bits(key + (first + i + 1) * kGoldenGamma);
  }
  // Uniform in [0, 2⁵³).
  LOCKSTEP_HD std::uint64_t bits53(std::size_t i) const { return bits(i) >> 11; }
};

// One sequence for each replica on each device. Its numbers depend on the seed, the device and the
// replica alone, so that replicas draw the same numbers in whatever order their threads run.
//
// Threads: any thread may take numbers. If two take them for one device and replica, which one gets
// which depends on their order.
class DeviceRandom {
 public:
  // Takes the next `count` numbers.
  RandomRange take(Device device, std::size_t replica, std::size_t count);

  // The seed, and how many numbers have been taken from each sequence.
  struct State {
    std::uint64_t seed = 0;
    std::map<std::pair<Device, std::size_t>, std::uint64_t> taken;  // by device and replica
  };
  State state();
  void set_state(const State& state);

 private:
  std::mutex mutex_;
  State state_{67280421310721, {}};
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/device_random.ipp>
#endif
