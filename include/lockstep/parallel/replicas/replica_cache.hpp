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

// The replicas' copies of one module's tensors, kept from one forward to the next.
//
// A tensor is copied again only if its original or the copy has changed since. Copying counts as a
// change, so a backward that still needs the old values throws.
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

  // Brings the copies of `originals`, which are on one device, up to date on each of `devices` and
  // returns them: all those for devices[0], then those for devices[1]. The first entry for the
  // originals' own device gets the originals themselves. Copies are issued as by
  // comm::broadcast_coalesced.
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
    std::vector<Versions> versions;  // empty: nothing has been allocated
  };
  struct Target;
  // An original, and a view of the memory that it had at the last refresh. Owning both keeps their
  // addresses from being reused.
  struct Original {
    Tensor tensor;
    Tensor memory;
  };

  // Drops all copies unless the originals are the same tensors in the same memory as before.
  void forget_if_changed(const std::vector<Tensor>& originals);

  // Allocates the copies on the stream's device if they are not there.
  static void prepare(Replica& replica, const Stream& stream, const std::vector<Tensor>& originals);

  // Issues the copies of what has changed, and notes the new versions.
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
