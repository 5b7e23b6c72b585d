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

// Training on ranks that do not all have the same number of batches.
namespace lockstep {

// The same on every rank.
//
// **Torch counterpart.** The arguments of torch.distributed.algorithms.Join.
struct JoinOptions {
  // Whether gradients are divided by the number of all ranks, also when some have no batch any
  // more; otherwise by the number of those that have one.
  bool divide_by_initial_world_size = true;
  // If not, `join` does nothing but call its function: for inputs known to be even.
  bool enable = true;
  // Whether the first rank to run out of inputs ends the training of all with an Error.
  bool throw_on_early_termination = false;
};

// What the ranks have told each other before some collectives: which ones these are, or that they
// have joined, which is to say, have run out of inputs.
class JoinExchange {
 public:
  // For each rank 0 where it has joined, otherwise the number of what it is about to do.
  explicit JoinExchange(std::vector<std::int32_t> codes) : codes_(std::move(codes)) {}

  int size() const { return static_cast<int>(codes_.size()); }
  // How many ranks have not joined, and the first of them (or `size` if there is none).
  int active() const {
    return size() - static_cast<int>(std::count(codes_.begin(), codes_.end(), 0));
  }
  int first_active() const;
  // What rank r has told. An IndexError if there is no such rank.
  std::int32_t code(int r) const {
    check<IndexError>(r >= 0 && r < size(), "JoinExchange.code: expected a rank from 0 to ",
                      size() - 1, ", got ", r);
    return codes_[static_cast<std::size_t>(r)];
  }

 private:
  std::vector<std::int32_t> codes_;
};

namespace detail {

// What the joinables of one `join` have in common on one rank.
//
// Threads: one at a time.
struct JoinState {
  distributed::ProcessGroup group;
  Device device;
  JoinOptions options;
  int last_active = 0;  // the lowest rank of those that were the last to join, as far as is known
};

}  // namespace detail

// What the ranks are telling each other: `get` waits for it.
//
// **Threads and exceptions.** A ValueError where ranks with inputs are about to do different
// things, or divide by different numbers of ranks; the Error of throw_on_early_termination; what
// the group throws.
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

// A joinable's place in a `join`.
//
// The joinable announces each phase of its work that has collectives, before them: a rank that has
// joined takes part in these by JoinHook::main_hook.
class JoinContext {
 public:
  // A joinable numbers its phases from 0 to kPhases - 1; another number is a ValueError.
  static constexpr int kPhases = 256;

  JoinContext(std::shared_ptr<detail::JoinState> state, int joinable)
      : state_(std::move(state)), joinable_(joinable) {}

  const JoinOptions& options() const { return state_->options; }

  // Tells the others by a collective, in the group's order, and returns.
  JoinAnnouncement announce(int phase) const { return tell(state_->group, code_of(phase)); }
  // The same, and waits for what they tell.
  JoinExchange meet(int phase) const {
    return tell(state_->group.blocking(), code_of(phase)).get();
  }
  // Tells the others that this rank has joined, and waits for what they tell.
  JoinExchange meet_joined() const { return tell(state_->group.blocking(), 0).get(); }

  static int joinable_of(std::int32_t code) { return (std::abs(code) - 1) / kPhases; }
  static int phase_of(std::int32_t code) { return (std::abs(code) - 1) % kPhases; }

 private:
  // What this rank announces for a phase. The sign says by how many ranks it divides, so that ranks
  // which differ in it find that out.
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

// What a joinable does for one `join`.
//
// **Torch counterpart.** torch.distributed.algorithms.JoinHook. There the ranks that have joined
// repeat a whole step, and are told once before each; here they are told of every phase.
class JoinHook : detail::NonCopyable {
 public:
  // Ends the use of the context; throws nothing and does not communicate.
  virtual ~JoinHook() = default;

  // Called before the function: from here on the joinable announces its phases.
  virtual void begin(const JoinContext& context) = 0;
  // Called on a rank that has joined: takes part in the collectives of `phase`, with nothing to
  // contribute.
  virtual void main_hook(int phase, const JoinExchange& exchange) = 0;
  // Called on all ranks, when all have joined; `last_rank` was among the last to do so.
  virtual void post_hook(int last_rank) = 0;
};

// What can take part in a `join`: DistributedDataParallel, and types of the user's.
//
// **Torch counterpart.** torch.distributed.algorithms.Joinable.
template <class T>
concept Joinable = requires(T& joinable, const JoinOptions& options) {
  { joinable.join_hook(options) } -> std::same_as<std::unique_ptr<JoinHook>>;
  { joinable.join_device() } -> std::convertible_to<Device>;
  { joinable.join_process_group() } -> std::convertible_to<distributed::ProcessGroup>;
};

namespace detail {

// Takes part in what the others do until all have joined, then calls each hook's post_hook.
void shadow_until_all_have_joined(const std::shared_ptr<JoinState>& state,
                                  const std::vector<std::unique_ptr<JoinHook>>& hooks);

}  // namespace detail

// Calls `fn`, in which each rank goes through its own batches, be they more or fewer than another
// rank's.
//
// A rank whose fn has returned takes part in the collectives of those that go on, with nothing to
// contribute, until all have returned; then each joinable gives all ranks the state of one of the
// last. Every rank calls it, with the same joinables in the same order, once for each epoch or for
// all.
//
// This is a function, where torch has a context manager: what follows the loop takes as long as the
// slowest rank and may throw, which a destructor must not; and it is left out where fn throws.
//
// **Torch counterpart.** torch.distributed.algorithms.Join, and DistributedDataParallel.join.
// **Threads and exceptions.** An exception of fn leaves `join` at once; ranks that wait for this
// one are released as the group does it. A ValueError for joinables of different groups, or for one
// that is in a join already; else as JoinAnnouncement.
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

// The same with one joinable.
template <Joinable J, std::invocable F>
void join(J& joinable, F&& fn, const JoinOptions& options = {}) {
  join(std::tie(joinable), std::forward<F>(fn), options);
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/join.ipp>
#endif
