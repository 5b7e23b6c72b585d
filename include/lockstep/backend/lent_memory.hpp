// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A block that the program has lent: its owner gets it back by a call of `deleter`.
//
// If no work uses the block any more, the thread that gives it back makes the call. Otherwise a
// background thread does once that work has ended, and nobody waits for it. Where nobody can know
// that it has ended (its GPU has failed, there is no memory to note the order, the process was
// forked, `main` has returned in a program that uses GPUs) there is no call, as memory is not freed
// then either. A deleter that throws terminates the program.
//
// Made by new for one block, and deletes itself after the call.
class LentMemory final : public BlockOwner {
 public:
  using Deleter = std::function<void(void*)>;

  explicit LentMemory(Deleter deleter) : deleter_(std::move(deleter)) {}

  LOCKSTEP_INLINE void deallocate(void* data, std::size_t bytes, StreamState& owner,
                                  UsedOn&& used_on) noexcept override;

  // For memory whose owner is not told.
  static BlockOwner& unowned();

 private:
  struct Use {
    StreamState* stream;
    EventPtr end;
  };

  void note(StreamState& stream);

  // Makes the call after the uses that are left.
  void give_back() noexcept;

  // Waits until the last of the uses has ended, and removes it. False if nobody can know.
  bool wait_for_last() noexcept;

  const Deleter deleter_;
  void* data_ = nullptr;
  std::vector<Use> uses_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/impl/lent_memory.ipp>
#endif
