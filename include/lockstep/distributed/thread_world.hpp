// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/call.hpp>
#include <lockstep/distributed/claimed_pieces.hpp>
#include <lockstep/distributed/departure.hpp>
#include <lockstep/distributed/mailbox.hpp>
#include <lockstep/distributed/rendezvous.hpp>
#include <lockstep/distributed/world_collectives.hpp>
#include <lockstep/error.hpp>

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
// A collective begins with a meeting: each rank writes down its call and where its memory is, and
// when all have come each reads what the others wrote. Little data is written down itself; with
// much data the ranks read and write each other's memory where it is, and part when all have done
// so; a large sum is in pieces, which the ranks that have woken up take. No rank can go missing
// between meeting and parting, since no user's code runs there.
//
// Where all ranks are on GPUs, collectives of memory there are work of the ranks' streams: each
// waits for what the others have recorded before the meeting, and at its end for what they have
// issued up to the parting.
//
// Threads: a slot is written by its rank before the meeting and read by all after it. The next
// collective takes the other slot of the pair, so one is only overwritten after the meeting of the
// next collective, to which all come when they have read it.
class ThreadWorld {
 public:
  // Up to here a rank's part is written down. In bytes.
  static constexpr std::size_t kSmall = 4096;

  // What a rank's stream has to do with the others' in a collective on GPUs.
  struct GpuSide {
    Stream stream;
    Event ready;               // inputs and outputs may be used; from before the meeting
    WorldCollectives* serves;  // rank 0's: what serves the ranks' GPUs, if anything
    Event done;                // and not any more; from before the parting
    std::exception_ptr error;  // why not all was issued, likewise
    bool hangs = false;        // likewise: what was issued cannot be waited for
  };

  struct alignas(128) Slot {
    Call call;
    bool on_gpu = false;  // where the memory is: then `gpu` says more
    std::span<const void* const> inputs;
    std::span<void* const> outputs;
    std::span<const int> members;            // new_group: the ranks of the part,
    std::shared_ptr<ThreadWorld> new_world;  // and their world, from the first of them
    alignas(64) std::array<std::byte, kSmall> small;
    std::optional<GpuSide> gpu;
  };

  // The ranks' devices need not be known: then, as where not all are GPUs, everything goes through
  // host memory.
  explicit ThreadWorld(int size, std::span<const Device> devices = {});

  // Of some of the ranks of another one.
  ThreadWorld(const ThreadWorld& whole, std::span<const int> members);

  // Each rank's, where all are on GPUs.
  const std::vector<Device>& gpus() const { return gpus_; }

  Slot& slot(std::size_t rank, unsigned turn) const { return slots_[rank][turn % 2]; }

  // Of a large sum. There is a pair of them for the same reason as of slots; rank 0 resets them
  // when it writes its slot.
  ClaimedPieces& pieces(unsigned turn) { return pieces_[turn % 2]; }

  // `rank` takes part in nothing any more, because of the error or, without one, because it has
  // returned: all that wait for it, or will, are told so. Only its first call counts. Any thread
  // may call it, whatever the ranks are doing. Allocates nothing.
  void leave(int rank, const std::exception_ptr& error) noexcept;

  // Some of the ranks have a world of their own, too, which they leave together with this one.
  void add_part(const std::shared_ptr<ThreadWorld>& world, std::span<const int> members);

  // Of the first rank that left. There is one once the meeting is broken.
  Departure first_departure() const;

  Rendezvous meeting;  // broken as soon as a rank leaves
  Rendezvous parting;  // never broken
  Mailbox mailbox;

 private:
  struct Part {
    std::weak_ptr<ThreadWorld> world;
    std::vector<int> members;
  };

  explicit ThreadWorld(std::vector<Departure> ranks);

  static std::vector<Departure> named(int size, std::span<const Device> devices);
  std::vector<Departure> named(std::span<const int> members) const;

  std::vector<Device> gpus_;  // as it was made
  const std::unique_ptr<std::array<Slot, 2>[]> slots_;
  std::array<ClaimedPieces, 2> pieces_;

  // Guards all below, but for the ranks' names. A part's is taken within that of the whole.
  mutable std::mutex mutex_;
  std::vector<Departure> ranks_;
  std::size_t first_gone_ = 0;  // if the meeting is broken
  std::vector<Part> parts_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread_world.ipp>
#endif
