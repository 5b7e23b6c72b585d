// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

void copy_part(void* to, const void* from, std::size_t bytes);

// Ranks that are threads of one process. Small data goes through the ranks' slots
// (ThreadWorld::kSmall); of large data a rank reads the others' memory where it is, and a large sum
// is divided into pieces: the rank that takes a piece adds it up and writes it to all. If all ranks
// are on GPUs, the same is work of the ranks' streams (gpu_moves.hpp).
class ThreadCarrier final : public Carrier {
 public:
  ThreadCarrier(int rank, int size, std::shared_ptr<ThreadWorld> world);

  LOCKSTEP_INLINE void run(const Call& call, std::span<const void* const> inputs,
                           std::span<void* const> outputs) override;

  LOCKSTEP_INLINE void leave(const std::exception_ptr& error) noexcept override;
  void break_off(const std::exception_ptr& error) noexcept override { leave(error); }
  bool buffers_in_flight() const override { return in_use_; }

  LOCKSTEP_INLINE void send(const Message& message, const void* data, Done done) override;
  LOCKSTEP_INLINE void receive(const Message& message, void* data, Done done) override;

  LOCKSTEP_INLINE std::optional<Stream> stream_for(Device device) override;

  LOCKSTEP_INLINE void run_on(const Stream& stream, const Call& call,
                              std::span<const void* const> inputs, std::span<void* const> outputs,
                              const Done&) override;

  LOCKSTEP_INLINE void send_on(const Stream& stream, const Message& message, const void* data,
                               Done done) override;
  LOCKSTEP_INLINE void receive_on(const Stream& stream, const Message& message, void* data,
                                  Done done) override;

  LOCKSTEP_INLINE std::unique_ptr<Carrier> split(std::span<const int> members) override;

 private:
  std::size_t ranks() const { return sources_.size(); }

  ThreadWorld::Slot& own_slot() const;

  // Waits until all ranks have written their calls to their slots, and compares them.
  void meet(const Call& call);

  static bool is_sum(const Call& call);

  // Pieces are so large that taking one costs little, and at most a few for each rank, so that all
  // ranks end at about the same time, whenever they woke up.
  void reduce_in_pieces(const Call& call);
  void find_memory();

  // Moves this rank's part. If `small`, the inputs are in the slots, else where the ranks have
  // them.
  void move(const Call& call, std::span<void* const> outputs, bool small);

  const std::shared_ptr<ThreadWorld> world_;
  unsigned turn_ = 0;  // the number of collectives so far: equal on all ranks at a meeting
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  bool in_use_ = false;          // another rank's GPU may use memory of this one for ever
  std::vector<Stream> streams_;  // one for each GPU that the rank has used
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread/impl/thread_carrier.ipp>
#endif
