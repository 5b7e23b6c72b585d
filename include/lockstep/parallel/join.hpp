// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

// Training on ranks that have different numbers of batches.
namespace lockstep {

// How a join treats ranks that have run out of batches. The same on every rank.
//
// **Torch counterpart.** The arguments of torch.distributed.algorithms.Join.
struct JoinOptions {
  // If true, gradients are divided by the number of all ranks, otherwise by that of the ranks that
  // still have batches.
  bool divide_by_initial_world_size = true;
  // If false, `join` only calls its function: for inputs known to be even.
  bool enable = true;
  // Whether the first rank that runs out of batches ends training on all ranks with an Error.
  bool throw_on_early_termination = false;
};

// What each rank has told the others before a phase: which phase it is about to run, or that it has
// joined, that is, has run out of batches.
class JoinExchange {
 public:
  // codes[r] is 0 if rank r has joined, otherwise the number of its phase.
  explicit JoinExchange(std::vector<std::int32_t> codes) : codes_(std::move(codes)) {}

  int size() const { return static_cast<int>(codes_.size()); }
  // The number of ranks that have not joined, and the last of them (-1 if there is none).
  int active() const {
    return size() - static_cast<int>(std::count(codes_.begin(), codes_.end(), 0));
  }
  int last_active() const;
  // What rank r has told. An IndexError for no such rank.
  std::int32_t code(int r) const {
    check<IndexError>(r >= 0 && r < size(), "JoinExchange.code: expected a rank from 0 to ",
                      size() - 1, ", got ", r);
    return codes_[static_cast<std::size_t>(r)];
  }

 private:
  std::vector<std::int32_t> codes_;
};

namespace detail {

// What the joinables of one `join` share on one rank.
//
// Threads: one at a time.
struct JoinState {
  distributed::ProcessGroup group;
  Device device;
  JoinOptions options;
  int last_active = 0;  // the highest of the ranks that joined last, as far as known
};

}  // namespace detail

// An exchange in progress: `get` waits for it.
//
// **Threads and exceptions.** A ValueError if ranks are about to run different phases, or divide by
// different numbers of ranks; the Error of throw_on_early_termination; what the group throws.
class JoinAnnouncement {
 public:
  JoinAnnouncement() = default;
  JoinAnnouncement(std::shared_ptr<detail::JoinState> state, distributed::Work work, Tensor codes)
      : state_(std::move(state)), work_(std::move(work)), codes_(std::move(codes)) {}

  JoinExchange get() const;

 private:
  std::shared_ptr<detail::JoinState> state_;
  distributed::Work work_;
  Tensor codes_;
};

// A joinable's place in a `join`. The joinable announces each phase of its work that has
// collectives before it runs them, so that ranks that have joined can take part by
// JoinHook::main_hook.
class JoinContext {
 public:
  // A joinable numbers its phases from 0 to kPhases - 1; another number is a ValueError.
  static constexpr int kPhases = 256;

  JoinContext(std::shared_ptr<detail::JoinState> state, int joinable)
      : state_(std::move(state)), joinable_(joinable) {}

  const JoinOptions& options() const { return state_->options; }

  // Tells the others by a collective, in the group's order, and returns at once.
  JoinAnnouncement announce(int phase) const { return tell(state_->group, code_of(phase)); }
  // The same, but waits for what the others tell.
  JoinExchange meet(int phase) const {
    return tell(state_->group.blocking(), code_of(phase)).get();
  }
  // Tells the others that this rank has joined, and waits for what they tell.
  JoinExchange meet_joined() const { return tell(state_->group.blocking(), 0).get(); }

  static int joinable_of(std::int32_t code) { return (std::abs(code) - 1) / kPhases; }
  static int phase_of(std::int32_t code) { return (std::abs(code) - 1) % kPhases; }

 private:
  // The code of a phase. Its sign tells what this rank divides by, so that ranks that differ
  // notice.
  std::int32_t code_of(int phase) const {
    check<ValueError>(phase >= 0 && phase < kPhases, "join: expected a phase from 0 to ",
                      kPhases - 1, ", got ", phase);
    const std::int32_t code = 1 + joinable_ * kPhases + phase;
    return state_->options.divide_by_initial_world_size ? code : -code;
  }

  JoinAnnouncement tell(const distributed::ProcessGroup& group, std::int32_t code) const;

  std::shared_ptr<detail::JoinState> state_;
  int joinable_;
};

// What a joinable does in one `join`.
//
// **Torch counterpart.** torch.distributed.algorithms.JoinHook, where joined ranks repeat a whole
// step; here they are told of every phase.
class JoinHook : detail::NonCopyable {
 public:
  // Ends the use of the context. Does not throw or communicate.
  virtual ~JoinHook() = default;

  // Called before the function. From here on the joinable announces its phases.
  virtual void begin(const JoinContext& context) = 0;
  // Called on a rank that has joined: takes part in the collectives of `phase` without
  // contributing.
  virtual void main_hook(int phase, const JoinExchange& exchange) = 0;
  // Called on all ranks once all have joined. `last_rank` is one of the last.
  virtual void post_hook(int last_rank) = 0;
};

// A type that can take part in a `join`, as DistributedDataParallel can.
//
// **Torch counterpart.** torch.distributed.algorithms.Joinable.
template <class T>
concept Joinable = requires(T& joinable, const JoinOptions& options) {
  { joinable.join_hook(options) } -> std::same_as<std::unique_ptr<JoinHook>>;
  { joinable.join_device() } -> std::convertible_to<Device>;
  { joinable.join_process_group() } -> std::convertible_to<distributed::ProcessGroup>;
};

namespace detail {

// Takes part in the others' phases until all ranks have joined, then calls each hook's post_hook.
void shadow_until_all_have_joined(const std::shared_ptr<JoinState>& state,
                                  const std::vector<std::unique_ptr<JoinHook>>& hooks);

}  // namespace detail

// Calls `fn`, in which each rank runs through its own batches, however many it has.
//
// A rank whose fn has returned takes part in the others' collectives, without contributing, until
// all have returned; then each joinable gives all ranks the state of one that finished last. Every
// rank calls join with the same joinables in the same order.
//
// join is a function, not a guard, since what follows the loop may throw, and is skipped if fn
// throws.
//
// **Torch counterpart.** torch.distributed.algorithms.Join, a context manager, and
// DistributedDataParallel.join.
// **Threads and exceptions.** An exception of fn leaves join at once; the group releases the ranks
// that wait for this one. A ValueError for joinables of different groups, or for one that is in a
// join already; else as JoinAnnouncement.
// **Example.** ls::join(std::tie(model, other), [&] { for (auto& batch : mine) train(batch); });
template <Joinable... Joinables, std::invocable F>
void join(const std::tuple<Joinables&...>& joinables, F&& fn, const JoinOptions& options = {}) {
  static_assert(sizeof...(Joinables) > 0, "lockstep: join expects at least one joinable");
  if (!options.enable) {
    std::forward<F>(fn)();
    return;
  }
  auto& first = std::get<0>(joinables);
  const auto state = std::make_shared<detail::JoinState>(
      detail::JoinState{first.join_process_group(), first.join_device(), options});
  std::vector<std::unique_ptr<JoinHook>> hooks;
  const auto add = [&](auto& joinable) {
    const distributed::ProcessGroup group = joinable.join_process_group();
    check<ValueError>(group.impl() == state->group.impl(),
                      "join: expected joinables of one process group");
    hooks.push_back(joinable.join_hook(options));
    hooks.back()->begin(JoinContext(state, static_cast<int>(hooks.size()) - 1));
  };
  std::apply([&](auto&... each) { (add(each), ...); }, joinables);
  std::forward<F>(fn)();
  detail::shadow_until_all_have_joined(state, hooks);
}

template <Joinable J, std::invocable F>
void join(J& joinable, F&& fn, const JoinOptions& options = {}) {
  join(std::tie(joinable), std::forward<F>(fn), options);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/join.ipp>
#endif
