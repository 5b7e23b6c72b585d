// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/distributed/thread/gpu_moves.hpp>
#include <lockstep/distributed/thread/rank_share.hpp>
#include <lockstep/distributed/thread/reduce_ranks.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

inline void copy_part(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// The carrier between ranks that are threads of one process. Small data goes through the ranks'
// slots (ThreadWorld::kSmall); large data is read where the other ranks have it. A large sum is
// divided into pieces: the rank that takes a piece adds it up and writes it to all ranks. If all
// ranks are on GPUs, the same is work of the ranks' streams (gpu_moves.hpp).
class ThreadCarrier final : public Carrier {
 public:
  ThreadCarrier(int rank, int size, std::shared_ptr<ThreadWorld> world)
      : Carrier(rank, size), world_(std::move(world)), sources_(static_cast<std::size_t>(size)) {
    targets_.reserve(sources_.size());
  }

  void run(const Call& call, std::span<const void* const> inputs, std::span<void* const> outputs,
           const Stream* stream, const Done&) override {
    if (stream) return run_on(*stream, call, inputs, outputs);
    // A slot has room for one part; scatter and reduce_scatter have one per rank.
    const bool small = call.bytes() <= ThreadWorld::kSmall &&
                       call.collective != Collective::scatter &&
                       call.collective != Collective::reduce_scatter;
    ThreadWorld::Slot& mine = write_slot(call, inputs, outputs, false);
    if (rank() == 0) world_->pieces(turn_).reset();
    if (small && !inputs.empty()) copy_part(mine.small.data(), inputs[0], call.bytes());
    meet(call);
    move(call, outputs, small);
    if (!small && !is_sum(call)) world_->parting.meet();
    ++turn_;
  }

  void leave(const std::exception_ptr& error) noexcept override { world_->leave(rank(), error); }
  void break_off(const std::exception_ptr& error) noexcept override { leave(error); }
  bool buffers_in_flight() const override { return in_use_; }

  void start(const Message& message, void* data, Done done, const Stream* stream) override {
    or_leave([&] { world_->mailbox.post(rank(), message, data, std::move(done), stream); });
  }

  std::optional<Stream> stream_for(Device device) override {
    if (world_->gpus().empty()) return std::nullopt;
    const auto same = [device](const Stream& stream) { return stream.device() == device; };
    const auto found = lockstep::detail::find_if(streams_, same);
    return found != streams_.end() ? *found : streams_.emplace_back(pool_stream(device));
  }
  // Even with NCCL: it may read other GPUs' memory in place, and messages are copies.
  bool works_across_gpus() const override { return true; }

  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    const Call call{.collective = Collective::new_group, .count = members.size()};
    ThreadWorld::Slot& mine = write_slot(call, {}, {}, false);
    mine.members = members;
    const auto at = lockstep::detail::find(members, rank());
    or_leave([&] {
      if (at != members.begin()) return;
      mine.new_world = std::make_shared<ThreadWorld>(*world_, members);
      world_->add_part(mine.new_world, members);
    });
    meet(call);
    std::size_t differs = ranks();
    for (std::size_t r = ranks(); r-- > 0;) {
      const std::span<const int> theirs = world_->slot(r, turn_).members;
      const std::span<const int> first = world_->slot(0, turn_).members;
      if (!std::equal(theirs.begin(), theirs.end(), first.begin(), first.end())) differs = r;
    }
    const std::shared_ptr<ThreadWorld> part =
        world_->slot(static_cast<std::size_t>(members[0]), turn_).new_world;
    world_->parting.meet();
    mine.new_world.reset();
    ++turn_;
    // Every rank throws.
    lockstep::check<ValueError>(differs == ranks(), "new_group: rank ", differs,
                                " lists other ranks than rank 0");
    std::unique_ptr<Carrier> result;
    or_leave([&] {
      if (at == members.end()) return;
      result = std::make_unique<ThreadCarrier>(static_cast<int>(at - members.begin()),
                                               static_cast<int>(members.size()), part);
    });
    return result;
  }

 private:
  std::size_t ranks() const { return sources_.size(); }

  std::size_t own() const { return static_cast<std::size_t>(rank()); }

  // `run` as work of the ranks' streams.
  void run_on(const Stream& stream, const Call& call, std::span<const void* const> inputs,
              std::span<void* const> outputs) {
    ThreadWorld::Slot& mine = write_slot(call, inputs, outputs, true);
    or_leave([&] {
      GpuCollectives* const serves = rank() == 0 ? collectives_for(world_->gpus()) : nullptr;
      mine.gpu.emplace(ThreadWorld::GpuSide{stream, stream.record_event(), serves, {}, {}});
    });
    meet(call);
    GpuMoves moves(*world_, turn_, rank(), call);
    moves.issue();
    world_->parting.meet();
    ++turn_;
    or_leave([&] { moves.await_others(in_use_); });
    moves.check();
  }

  // Writes what the other ranks need to know about this one's call.
  ThreadWorld::Slot& write_slot(const Call& call, std::span<const void* const> inputs,
                                std::span<void* const> outputs, bool on_gpu) {
    in_use_ = false;
    ThreadWorld::Slot& mine = world_->slot(own(), turn_);
    mine.call = call;
    mine.inputs = inputs;
    mine.outputs = outputs;
    mine.on_gpu = on_gpu;
    mine.new_world.reset();  // left by a new_group that did not match
    return mine;
  }

  // Waits until all ranks have written their calls to their slots, and compares them.
  void meet(const Call& call) {
    if (!world_->meeting.meet()) {
      throw RankGone(
          lockstep::detail::str(call, " on rank ", rank(), ": ", world_->first_departure().text()));
    }
    const Call& first = world_->slot(0, turn_).call;
    const bool on_gpu = world_->slot(0, turn_).on_gpu;
    for (std::size_t r = 1; r < ranks(); ++r) {
      const Call& other = world_->slot(r, turn_).call;
      const bool same_place = world_->slot(r, turn_).on_gpu == on_gpu;
      if (other == first && same_place) continue;
      // All ranks get here, so they stay in step.
      ++turn_;
      const auto where = [same_place](bool gpu) {
        return same_place ? "" : gpu ? " on a GPU" : " in host memory";
      };
      throw ValueError(lockstep::detail::str("collectives do not match: rank 0 called ", first,
                                             where(on_gpu), ", but rank ", r, " called ", other,
                                             where(!on_gpu)));
    }
  }

  static bool is_sum(const Call& call) {
    return call.collective == Collective::all_reduce || call.collective == Collective::reduce;
  }

  // Pieces are large enough that taking one costs little, and few enough, at most 4 per rank, that
  // all ranks end at about the same time, whenever they woke up.
  void reduce_in_pieces(const Call& call) {
    constexpr std::size_t kBytesRead = std::size_t{64} << 10;
    const auto count = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(call.bytes() * ranks() / kBytesRead, 1, 4 * ranks()));
    targets_.clear();
    world_->pieces(turn_).run(count, [&](std::size_t i) {
      // The others' slots are only valid while a piece is unfinished, so they are read after one is
      // taken.
      if (targets_.empty()) find_memory();
      reduce_ranks(call.dtype, call.op, sources_, targets_,
                   share_begin(call.count, call.dtype, i, count),
                   share_begin(call.count, call.dtype, i + 1, count));
    });
  }
  void find_memory() {
    for (std::size_t r = 0; r < ranks(); ++r) {
      const ThreadWorld::Slot& slot = world_->slot(r, turn_);
      sources_[r] = slot.inputs[0];
      for (void* output : slot.outputs) targets_.push_back(output);
    }
  }

  // Does this rank's share. If `small`, the inputs are in the slots, else where the ranks have
  // them.
  void move(const Call& call, std::span<void* const> outputs, bool small) {
    const auto source = [&](std::size_t r, std::size_t part) -> const void* {
      const ThreadWorld::Slot& slot = world_->slot(r, turn_);
      return small ? slot.small.data() : slot.inputs[part];
    };
    const auto add_up = [&](std::size_t part) {
      for (std::size_t r = 0; r < ranks(); ++r) sources_[r] = source(r, part);
      reduce_ranks(call.dtype, call.op, sources_, outputs, 0, call.count);
    };
    do_share(
        call, own(), ranks(), outputs.size(), [&] { small ? add_up(0) : reduce_in_pieces(call); },
        [&] { add_up(own()); },
        [&](std::size_t i, std::size_t r, std::size_t part) {
          copy_part(outputs[i], source(r, part), call.bytes());
        });
  }

  const std::shared_ptr<ThreadWorld> world_;
  unsigned turn_ = 0;  // the number of collectives so far: the same on all ranks at a meeting
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  bool in_use_ = false;          // another rank's GPU may use memory of this one for ever
  std::vector<Stream> streams_;  // one for each GPU that the rank has used
};

}  // namespace lockstep::distributed::detail
