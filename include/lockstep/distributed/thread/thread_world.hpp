// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/claimed_pieces.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/distributed/thread/mailbox.hpp>
#include <lockstep/distributed/thread/rendezvous.hpp>
#include <lockstep/error.hpp>
#include <lockstep/function_ref.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// What the ranks of a world of threads share.
//
// A collective begins with a meeting: each rank writes its call and the addresses of its memory to
// its slot, and when all have arrived each reads the others' slots. Small data is copied into the
// slot itself. Large data stays in the ranks' memory, which the others use in place until the
// parting, when all have finished. Ranks that are awake take the pieces of a large sum one by one.
// No rank can go missing between meeting and parting, since no user's code runs there.
//
// If all ranks are on GPUs, collectives on their memory are work of the ranks' streams: each stream
// first waits for what the others have recorded before the meeting, and at the end for what they
// have issued before the parting.
//
// Threads: a slot is written by its rank before the meeting and read by all after it. The next
// collective uses the other slot of the pair, so a slot is only overwritten after the next
// collective's meeting, to which all come after reading it.
class ThreadWorld {
 public:
  // The largest part, in bytes, that is copied into the slot.
  static constexpr std::size_t kSmall = 4096;

  // What the others need to know about a rank's stream in a collective on GPUs.
  struct GpuSide {
    Stream stream;
    Event ready;             // recorded before the meeting: inputs and outputs may be used
    GpuCollectives* serves;  // set by rank 0 alone: what serves the ranks' GPUs, or null
    Event done;              // recorded before the parting: the rank's share has ended
    std::optional<lockstep::detail::DescribedError> failure;  // why not all was issued
    bool hangs = false;  // what was issued cannot be waited for: both set before the parting
  };

  struct alignas(128) Slot {
    Call call;
    bool on_gpu = false;  // the memory is on a GPU, and `gpu` is set
    std::span<const void* const> inputs;
    std::span<void* const> outputs;
    std::span<const int> members;            // for new_group: its ranks
    std::shared_ptr<ThreadWorld> new_world;  // for new_group: in the slot of its first rank
    alignas(64) std::array<std::byte, kSmall> small;
    std::optional<GpuSide> gpu;
  };

  // Everything goes through host memory unless `devices` are given and all are GPUs.
  explicit ThreadWorld(int size, std::span<const Device> devices = {})
      : ThreadWorld(static_cast<std::size_t>(size), [&](std::size_t i) {
          const auto device = devices.empty() ? std::nullopt : std::optional(devices[i]);
          return Departure{static_cast<int>(i), device};
        }) {}

  // A world of some of another one's ranks.
  ThreadWorld(const ThreadWorld& whole, std::span<const int> members)
      : ThreadWorld(members.size(), [&](std::size_t i) {
          const Departure& rank = whole.ranks_[static_cast<std::size_t>(members[i])];
          return Departure{rank.rank, rank.device};
        }) {}

  // Each rank's GPU if all ranks are on GPUs, else empty.
  const std::vector<Device>& gpus() const { return gpus_; }

  Slot& slot(std::size_t rank, unsigned turn) const { return slots_[rank][turn % 2]; }

  // The pieces of a large sum; a pair, like the slots. Rank 0 resets them when it writes its slot.
  ClaimedPieces& pieces(unsigned turn) { return pieces_[turn % 2]; }

  // `rank` takes part no more, because of the error or, without one, because it has returned: all
  // that wait for it, now or later, are told so. Only its first call counts. Any thread may call it
  // at any time. Succeeds without memory.
  void leave(int rank, const std::exception_ptr& error) noexcept {
    set_gone(rank, error ? std::optional(lockstep::detail::described(error)) : std::nullopt);
  }

  // Adds a world of some of the ranks, which leave it when they leave this one.
  void add_part(const std::shared_ptr<ThreadWorld>& world, std::span<const int> members) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const Part& part) { return part.world.expired(); });
    parts_.push_back({world, {members.begin(), members.end()}});
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Departure& rank = ranks_[static_cast<std::size_t>(members[i])];
      if (rank.gone) world->set_gone(static_cast<int>(i), rank.thrown);
    }
  }

  // The departure of the first rank that left. Called after the meeting is broken.
  Departure first_departure() const {
    const std::lock_guard lock(mutex_);
    return *first_gone_;
  }

  Rendezvous meeting;  // broken as soon as a rank leaves
  Rendezvous parting;  // never broken
  Mailbox mailbox;

 private:
  struct Part {
    std::weak_ptr<ThreadWorld> world;
    std::vector<int> members;
  };

  ThreadWorld(std::size_t size, lockstep::detail::FunctionRef<Departure(std::size_t i)> rank_of)
      : meeting(static_cast<int>(size)),
        parting(static_cast<int>(size)),
        mailbox(size),
        slots_(new std::array<Slot, 2>[size]) {
    for (std::size_t i = 0; i < size; ++i) ranks_.push_back(rank_of(i));
    const auto on_gpu = [](const Departure& rank) { return rank.device && rank.device->is_cuda(); };
    if (!lockstep::detail::all_of(ranks_, on_gpu)) return;
    for (const Departure& rank : ranks_) gpus_.push_back(*rank.device);
  }

  void set_gone(int rank, const std::optional<lockstep::detail::DescribedError>& thrown) noexcept {
    const std::lock_guard lock(mutex_);
    Departure& mine = ranks_[static_cast<std::size_t>(rank)];
    if (mine.gone) return;
    mine.gone = true;
    mine.thrown = thrown;
    if (!first_gone_) first_gone_ = mine;
    meeting.break_off();
    mailbox.leave(rank, mine);
    for (const Part& part : parts_) {
      const auto at = lockstep::detail::find(part.members, rank);
      const auto world = part.world.lock();
      if (world && at != part.members.end()) {
        world->set_gone(static_cast<int>(at - part.members.begin()), thrown);
      }
    }
  }

  std::vector<Device> gpus_;  // set by the constructor alone
  const std::unique_ptr<std::array<Slot, 2>[]> slots_;
  std::array<ClaimedPieces, 2> pieces_;

  // Guards all below, except each rank's number and device, which do not change. A part's mutex is
  // taken within that of the whole.
  mutable std::mutex mutex_;
  std::vector<Departure> ranks_;
  std::optional<Departure> first_gone_;  // set if the meeting is broken
  std::vector<Part> parts_;
};

}  // namespace lockstep::distributed::detail
