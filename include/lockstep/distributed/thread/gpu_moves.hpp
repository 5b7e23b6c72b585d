// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/distributed/thread/world_collectives.hpp>

#include <cstddef>
#include <exception>
#include <vector>

namespace lockstep::distributed::detail {

// One rank's share of a collective of a world of threads on GPUs, after the meeting. If NCCL serves
// the ranks' devices, rank 0 issues the collective for all; otherwise each rank copies and adds on
// its own stream.
class GpuMoves {
 public:
  GpuMoves(const ThreadWorld& world, unsigned turn, int rank, const Call& call);

  // Issues the rank's share. Called before the parting: an error is kept, so that all ranks come to
  // it.
  void issue() noexcept;

  // Has the rank's stream wait for what the others have issued. Called after the parting. If the
  // stream cannot wait for another rank, the host does, and the error is thrown, which names that
  // rank if its GPU has failed. Sets `in_use` if the host cannot, either: that GPU may use this
  // rank's memory for ever.
  void await_others(bool& in_use) const;

  // Throws this rank's error, or else a DeviceError that names the first rank that has failed.
  void check() const;

 private:
  ThreadWorld::Slot& slot(std::size_t r) const { return world_.slot(r, turn_); }
  ThreadWorld::GpuSide& side(std::size_t r) const { return *slot(r).gpu; }
  const Stream& stream() const { return side(own_).stream; }

  void start() const;

  // Has the rank's stream wait for an event on rank r's.
  void wait_for(std::size_t r, const Event& event) const;

  void keep_error() noexcept;
  [[noreturn]] void fail_of(std::size_t r, const lockstep::detail::DescribedError& cause) const;

  // What serves all ranks' devices, or null; the same on all ranks. Null also if a rank brings
  // memory of another GPU than its own.
  WorldCollectives* serving() const;

  std::vector<GpuPart> parts() const;

  // Part i of what a rank reads, and of what it writes.
  GpuMemory input(std::size_t r, std::size_t i) const;
  GpuMemory output(std::size_t r, std::size_t i) const;

  void move() const;

  // Writes the elements [begin, end) of the sum to the outputs of all ranks.
  void reduce(std::size_t begin, std::size_t end) const;

  void copy(const GpuMemory& to, const GpuMemory& from) const;

  const ThreadWorld& world_;
  const unsigned turn_;
  const std::size_t own_;
  const std::size_t ranks_;
  const Call call_;
  std::exception_ptr error_;  // why the rank has not issued all of its share
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread/impl/gpu_moves.ipp>
#endif
