// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The replicas' memory of one module, kept from one forward to the next: for each device a copy of
// every tensor, and what the original's version was when it was made.
//
// A tensor is copied again if the original or the copy has changed since; otherwise it costs
// nothing. Writing a copy again counts as a change of it, so that a backward that still needs its
// old values is an error.
//
// Threads: several may call `refresh` at once, as long as no original changes: a change is copied
// over what the others still use.
class ReplicaCache {
 public:
  ReplicaCache() = default;
  // A copy starts empty: two owners would overwrite each other's memory.
  ReplicaCache(const ReplicaCache&) {}
  ReplicaCache(ReplicaCache&& other) noexcept { *this = std::move(other); }
  ReplicaCache& operator=(const ReplicaCache&) { return *this = ReplicaCache(); }
  ReplicaCache& operator=(ReplicaCache&& other) noexcept {
    originals_ = std::move(other.originals_);
    replicas_ = std::move(other.replicas_);
    return *this;
  }

  // Brings the copies of `originals`, which are on one device, up to date on each of `devices`, and
  // returns them: those of all tensors for devices[0], then for devices[1]. The first entry for the
  // originals' device has the originals themselves. Copies are issued as
  // comm::broadcast_coalesced's are.
  std::vector<Tensor> refresh(const std::vector<Tensor>& originals,
                              const std::vector<Device>& devices);

 private:
  struct Versions {
    std::uint64_t original = UINT64_MAX;  // never copied
    std::uint64_t copy = UINT64_MAX;
    friend bool operator==(const Versions&, const Versions&) = default;
  };
  struct Replica {
    Device device;
    comm::detail::FlatCopies flat;
    std::vector<Versions> versions;  // empty: nothing is there yet
  };
  struct Target;
  // An original, and a view of the memory that it had at the last refresh. Owning both keeps their
  // addresses from being used for others, which would be taken for these.
  struct Original {
    Tensor tensor;
    Tensor memory;
  };

  // Drops all copies unless the originals are the same tensors in the same memory as before.
  void forget_if_changed(const std::vector<Tensor>& originals);

  // Allocates the copies on the stream's device, unless they are there.
  static void prepare(Replica& replica, const Stream& stream, const std::vector<Tensor>& originals);

  // Issues the copies of what has changed, and notes the versions.
  static void update(std::vector<Target>& targets, const std::vector<Tensor>& originals,
                     const std::vector<Device>& devices);

  std::mutex mutex_;  // guards all below
  std::vector<Original> originals_;
  std::vector<Replica> replicas_;  // in the order of the devices
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/replicas/impl/replica_cache.ipp>
#endif
