// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/call.hpp>
#include <lockstep/distributed/reduce_on_gpu.hpp>
#include <lockstep/distributed/thread_world.hpp>
#include <lockstep/distributed/world_collectives.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::distributed::detail {

// One rank's share of a collective of a world of threads on GPUs, after the meeting: by NCCL, for
// which rank 0 speaks, where that serves the ranks' devices, and otherwise by copies and adds on
// the rank's stream.
class GpuMoves {
 public:
  GpuMoves(const ThreadWorld& world, unsigned turn, int rank, const Call& call);

  // Before the parting: what goes wrong is kept, so that all ranks come to it.
  void issue() noexcept;

  // After the parting: what is issued to the rank's stream from here on comes after what the others
  // have issued. What goes wrong on this rank alone is thrown when the host has waited for them
  // instead. `in_use` becomes true where not even that can be: they may still use its memory.
  void await_others(bool& in_use) const;

  // Throws on every rank what went wrong on one.
  void check() const;

 private:
  ThreadWorld::Slot& slot(std::size_t r) const { return world_.slot(r, turn_); }
  ThreadWorld::GpuSide& side(std::size_t r) const { return *slot(r).gpu; }
  const Stream& stream() const { return side(own_).stream; }

  void start() const;

  void keep_error() noexcept;
  // Blocks until a stream or an event has ended. False if it cannot be waited for.
  template <class Waited>
  static bool has_ended(const Waited& waited) noexcept;

  // The same on all ranks. The ranks may bring memory of other GPUs than their own.
  WorldCollectives* serving() const;

  std::vector<GpuPart> parts() const;

  // Part i of what a rank reads, and of what it writes.
  GpuMemory input(std::size_t r, std::size_t i) const;
  GpuMemory output(std::size_t r, std::size_t i) const;

  void move() const;

  // The elements [begin, end) of the sum, for all who want it.
  void reduce(std::size_t begin, std::size_t end) const;

  void copy(const GpuMemory& to, const GpuMemory& from) const;

  const ThreadWorld& world_;
  const unsigned turn_;
  const std::size_t own_;
  const std::size_t ranks_;
  const Call call_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/gpu_moves.ipp>
#endif
