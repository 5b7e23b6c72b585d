// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/distributed/thread/gpu_faults.hpp>
#include <lockstep/distributed/thread/rank_share.hpp>
#include <lockstep/distributed/thread/reduce_on_gpu.hpp>
#include <lockstep/distributed/thread/reduce_ranks.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// One rank's share of a collective of a world of threads on GPUs, after the meeting. If NCCL serves
// the ranks' devices, rank 0 issues the collective for all; otherwise each rank copies and adds on
// its own stream.
class GpuMoves {
 public:
  GpuMoves(const ThreadWorld& world, unsigned turn, int rank, const Call& call)
      : world_(world),
        turn_(turn),
        own_(static_cast<std::size_t>(rank)),
        ranks_(world.gpus().size()),
        call_(call) {}

  // Issues the rank's share. Called before the parting; keeps an error, so that all ranks reach the
  // parting.
  void issue() noexcept {
    error_ = lockstep::detail::thrown_by([&] {
      if (call_.count > 0) start();
    });
    const std::exception_ptr unmarked =
        lockstep::detail::thrown_by([&] { side(own_).done = stream().record_event(); });
    // Without an event only the host can wait for the share.
    if (unmarked && !await_end(stream())) side(own_).hangs = true;
    if (!error_) error_ = unmarked;
    if (error_) side(own_).failure = lockstep::detail::described(error_);
  }

  // Makes the rank's stream wait for the others' shares. Called after the parting. If the stream
  // cannot wait for another rank, the host does, and the error is thrown, which names that rank if
  // its GPU has failed. Sets `in_use` if the host cannot wait either: that GPU may use this rank's
  // memory for ever.
  void await_others(bool& in_use) const {
    std::exception_ptr error;
    if (side(own_).hangs) error = error_;
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == own_) continue;
      const std::exception_ptr thrown =
          lockstep::detail::thrown_by([&] { wait_for(r, side(r).done); });
      if (!error) error = thrown;
      if ((thrown && !await_end(side(r).done)) || side(r).hangs) in_use = true;
    }
    if (error) std::rethrow_exception(error);
  }

  // Throws this rank's error, else a DeviceError that names the first rank that has failed.
  void check() const {
    if (error_) std::rethrow_exception(error_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (side(r).failure) fail_of(r, *side(r).failure);
    }
  }

 private:
  ThreadWorld::Slot& slot(std::size_t r) const { return world_.slot(r, turn_); }
  ThreadWorld::GpuSide& side(std::size_t r) const { return *slot(r).gpu; }
  const Stream& stream() const { return side(own_).stream; }

  void start() const {
    if (GpuCollectives* const all = serving()) {
      if (own_ != 0) return;
      GpuCall together{call_, {}};
      for (std::size_t r = 0; r < ranks_; ++r) {
        together.parts.push_back({side(r).stream, slot(r).inputs, slot(r).outputs});
      }
      return all->run({&together, 1});
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r != own_) wait_for(r, side(r).ready);
    }
    move();
  }

  // Makes the rank's stream wait for an event on rank r's.
  void wait_for(std::size_t r, const Event& event) const {
    try {
      stream().wait_event(event);
    } catch (...) {
      if (!has_failed(stream()) && has_failed(event))
        fail_of(r, lockstep::detail::described(std::current_exception()));
      throw;
    }
  }

  [[noreturn]] void fail_of(std::size_t r, const lockstep::detail::DescribedError& cause) const {
    lockstep::detail::fail<DeviceError>(call_, ": failed on rank ", r, ", on ",
                                        side(r).stream.device(), ": ", cause.text());
  }

  // What serves all ranks' devices; the same on all ranks. Null if nothing does, or if a rank's
  // memory is on another GPU than its own.
  GpuCollectives* serving() const {
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (side(r).stream.device() != world_.gpus()[r]) return nullptr;
    }
    return side(0).serves;
  }

  // The i-th part that rank r reads, and that it writes.
  GpuMemory input(std::size_t r, std::size_t i) const {
    return {side(r).stream.device(), const_cast<void*>(slot(r).inputs[i])};
  }
  GpuMemory output(std::size_t r, std::size_t i) const {
    return {side(r).stream.device(), slot(r).outputs[i]};
  }

  void move() const {
    do_share(
        call_, own_, ranks_, slot(own_).outputs.size(),
        [&] {
          std::vector<GpuMemory> outputs;
          for (std::size_t r = 0; r < ranks_; ++r) {
            for (std::size_t i = 0; i < slot(r).outputs.size(); ++i) {
              outputs.push_back(output(r, i));
            }
          }
          add_up(0, outputs, share_begin(call_.count, call_.dtype, own_, ranks_),
                 share_begin(call_.count, call_.dtype, own_ + 1, ranks_));
        },
        [&] {
          const GpuMemory result = output(own_, 0);
          add_up(own_, {&result, 1}, 0, call_.count);
        },
        [&](std::size_t i, std::size_t r, std::size_t part) {
          copy_between(output(own_, i), input(r, part), call_.bytes(), stream());
        });
  }

  // Writes elements [begin, end) of the sum of all ranks' parts to the outputs.
  void add_up(std::size_t part, std::span<const GpuMemory> outputs, std::size_t begin,
              std::size_t end) const {
    std::vector<GpuMemory> inputs;
    for (std::size_t r = 0; r < ranks_; ++r) inputs.push_back(input(r, part));
    reduce_on_gpu(stream(), call_.dtype, call_.op, inputs, outputs, begin, end);
  }

  const ThreadWorld& world_;
  const unsigned turn_;
  const std::size_t own_;
  const std::size_t ranks_;
  const Call call_;
  std::exception_ptr error_;  // why the rank has not issued all of its share
};

}  // namespace lockstep::distributed::detail
