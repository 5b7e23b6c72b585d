// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/fault.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/recording/recorder.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed {

namespace detail {

// All that rank 0 knows of the ranks, and what follows from it. It has neither clock nor
// connections: it is told what has come, and when.
//
// Only the first fault of a rank is noted. Once a rank has been told of a fault, what it does
// follows from that and is no fault, unless it falls silent.
class WatchdogLedger {
 public:
  // Since the watch began.
  using Time = std::chrono::milliseconds;

  // A group's ranks, and how many groups of the same ranks were made before it.
  using GroupKey = std::pair<std::vector<int>, std::uint32_t>;

  // Where a rank is in a group; `age` is how long it has been there, by its own clock.
  struct Position {
    std::uint64_t number = 0;
    bool inside = false;
    Time age{0};
    std::string call{};  // if inside
  };

  // A rank that has not come within `join_timeout` is missing.
  WatchdogLedger(int size, Time join_timeout, const WatchdogOptions& options)
      : join_timeout_(join_timeout), options_(options), ranks_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  bool has_joined(int rank) const { return of(rank).joined; }

  void join(int rank, Time now);
  void note_frame(int rank, Time now) { of(rank).last_frame = now; }

  void report(int rank, const GroupKey& key, Position position, Time now);

  // The rank comes to no collective of the group any more. Once that holds for all its ranks,
  // nothing of the group is kept.
  void leave_group(int rank, const GroupKey& key);

  // The rank has ended in good order.
  void leave(int rank);
  // The rank comes to no collective of any group any more: it has ended.
  void finish(int rank);
  // How many ranks have ended.
  std::uint32_t ends() const { return ends_; }
  // The rank has reported where it was when it knew of the first `known` ends. Looks whether it
  // waits for one of these. Where it was before tells nothing of that: its collective may have
  // failed, and the other rank have ended because of that, before this one's next heartbeat.
  void find_left(int rank, std::uint32_t known);
  // The rank's connection has ended, without a goodbye.
  void lose(int rank, const std::string& reason);
  void abort(int rank, const std::string& reason);
  // The rank knows of a fault.
  void tell(int rank) { of(rank).told = true; }

  // Looks for ranks that are absent, silent or late at this time.
  void examine(Time now);

  // The faults in the order in which they were found.
  const std::vector<Fault>& faults() const { return faults_; }

  // How far a rank has come: its last collective in each group that it is in.
  std::map<GroupKey, std::uint64_t> numbers(int rank) const;

 private:
  struct Rank {
    bool joined = false;
    bool gone = false;
    std::uint32_t end = 0;  // which end it was, counted from 1; 0: it has not ended
    bool told = false;
    bool faulty = false;
    Time last_frame{0};
  };
  struct RankPosition {
    Position position;
    Time since{0};
    bool left = false;
  };
  using Group = std::vector<RankPosition>;  // in the order of the group's ranks
  using Groups = std::map<GroupKey, Group>;

  template <class... Parts>
  static std::string str(const Parts&... parts) {
    return lockstep::detail::str(parts...);
  }
  // Prints a measured time, in whole seconds from 10 s on: it is only as exact as the interval.
  static std::string whole_seconds(Time time);

  bool all_have_left(const std::pair<const GroupKey, Group>& one) const;
  void erase_left_groups();
  // Returns the group after it.
  Groups::iterator erase_group(Groups::iterator group);

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  static std::size_t index(const GroupKey& key, int rank);
  // True if a rank that is at `one` waits in its collective for the rank that is at `other`.
  static bool waits_for(const Position& one, const Position& other);

  void note(Fault::Kind kind, int rank, std::string text);

  // "; by the last heartbeats, rank 0 waits for it in collective #17, ...", or nothing. They can be
  // an interval old: since then a rank that does not wait yet may have gone through many.
  std::string who_waits_for(int rank) const;
  std::string who_waits(const GroupKey& key, const Group& group, int rank) const;
  // " of the group of ranks 0, 2", or nothing if it is the group of all ranks.
  std::string name_of(const GroupKey& key) const;

  // What a rank that others wait for does instead of coming.
  std::string activity_of(int rank, const Position& here, Time since, Time now) const;

  void find_mismatch(const GroupKey& key, const Group& group, int rank);

  void find_late(const GroupKey& key, const Group& group, Time now);

  Time join_timeout_;
  WatchdogOptions options_;
  std::vector<Rank> ranks_;
  std::uint32_t ends_ = 0;
  Groups groups_;
  std::set<std::pair<GroupKey, std::uint64_t>> stuck_;
  std::vector<Fault> faults_;
};

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_ledger.ipp>
#endif
