// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/fault.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/recording/recorder.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

using lockstep::detail::str;

// All that rank 0 knows about the ranks, and the faults that follow from it. It has no clock and no
// connections: its caller says what has come, and when.
//
// It notes only the first fault of a rank. Once a rank has been told of a fault, what it does is a
// consequence and no fault, unless it falls silent.
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

  // A rank that has not connected within `join_timeout` is absent.
  WatchdogLedger(int size, Time join_timeout, const WatchdogOptions& options)
      : join_timeout_(join_timeout), options_(options), ranks_(static_cast<std::size_t>(size)) {}

  // " of the group of ranks 0, 2", or " of group 2 of" them if one was made before; nothing for the
  // first group of all `size` ranks.
  static std::string name_of(const GroupKey& key, int size) {
    const auto& [ranks, before] = key;
    const bool all = ranks.size() == static_cast<std::size_t>(size);
    if (all && before == 0) return {};
    std::string text = before == 0 ? " of the group" : str(" of group ", before + 1);
    text += all ? " of all ranks" : " of ranks ";
    for (std::size_t i = 0; !all && i < ranks.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return text;
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  bool has_joined(int rank) const { return of(rank).last_frame.has_value(); }

  // A frame has come from the rank. The first one makes it join.
  void note_frame(int rank, Time now) { of(rank).last_frame = now; }

  void report(int rank, const GroupKey& key, Position position, Time now) {
    Group& group = groups_[key];
    if (group.empty()) group.resize(key.first.size());
    RankPosition& mine = group[index(key, rank)];
    mine.position = std::move(position);
    mine.since = now - mine.position.age;
    if (!mine.position.inside) return;
    find_mismatch(key, group, rank);
  }

  // The rank takes part in no further collective of the group. Once this holds for all its ranks,
  // the group is forgotten.
  void leave_group(int rank, const GroupKey& key) {
    const auto found = groups_.find(key);
    if (found == groups_.end()) return;
    found->second[index(key, rank)].left = true;
    if (!all_have_left(*found)) return;
    stuck_.erase(key);
    groups_.erase(found);
  }

  // The rank has said goodbye.
  void leave(int rank) {
    of(rank).gone = true;
    finish(rank);
    erase_left_groups();
  }
  // The rank takes part in no further collective of any group: it has ended.
  void finish(int rank) {
    if (of(rank).end == 0) of(rank).end = ++ends_;
  }
  // How many ranks have ended.
  std::uint32_t ends() const { return ends_; }
  // The rank has reported where it was when it knew of the first `known` ends. Checks whether it
  // waits for one of these. An earlier position would not do: its collective may have failed, and
  // the other rank have ended because of that, before this one's next heartbeat.
  void find_left(int rank, std::uint32_t known) {
    for (const auto& [key, group] : groups_) {
      const std::size_t at = index(key, rank);
      if (at == group.size()) continue;
      for (std::size_t i = 0; i < group.size(); ++i) {
        const int other = key.first[i];
        const std::uint32_t end = of(other).end;
        const Position& there = group[i].position;
        if (i == at || end == 0 || end > known || !waits_for(group[at].position, there)) continue;
        note(Fault::Kind::left, other,
             str("rank ", other, " has ended", after(there.number), "; ",
                 who_waits(key, group, other)));
      }
    }
  }
  // The rank's connection has ended without a goodbye.
  void lose(int rank, const std::string& reason) {
    if (of(rank).gone) return;
    note(Fault::Kind::died, rank,
         str("rank ", rank, " has died: its connection was lost (", reason, ')',
             who_waits_for(rank)));
    of(rank).gone = true;
    erase_left_groups();
  }
  void abort(int rank, const std::string& reason) {
    note(Fault::Kind::threw, rank, str("rank ", rank, " has failed: ", reason));
  }
  // The rank has been told of a fault.
  void note_told(int rank) { of(rank).told = true; }

  // Looks for ranks that are absent, silent or late by now.
  void examine(Time now) {
    for (int rank = 0; rank < size(); ++rank) {
      const Rank& state = of(rank);
      if (state.gone) continue;
      if (!state.last_frame && now > join_timeout_) {
        note(Fault::Kind::absent, rank,
             str("rank ", rank, " has not come: it has not connected to the watchdog within ",
                 Seconds{join_timeout_}, who_waits_for(rank)));
      } else if (state.last_frame && now - *state.last_frame > options_.heartbeat_timeout) {
        note(Fault::Kind::silent, rank,
             str("rank ", rank, " has not answered for ", whole_seconds(now - *state.last_frame),
                 ": it is stopped, or its machine is lost", who_waits_for(rank)));
      }
    }
    for (const auto& [key, group] : groups_) find_late(key, group, now);
  }

  // The faults in the order in which they were found.
  const std::vector<Fault>& faults() const { return faults_; }

  // The number of a rank's last collective in each of its groups.
  std::map<GroupKey, std::uint64_t> numbers(int rank) const {
    std::map<GroupKey, std::uint64_t> all;
    for (const auto& [key, group] : groups_) {
      const std::size_t at = index(key, rank);
      if (at < group.size()) all.emplace(key, group[at].position.number);
    }
    return all;
  }

 private:
  struct Rank {
    bool gone = false;
    std::uint32_t end = 0;  // it was the end-th to end; 0: it has not ended
    bool told = false;
    bool faulty = false;
    std::optional<Time> last_frame = {};
  };
  struct RankPosition {
    Position position;
    Time since{0};
    bool left = false;
  };
  using Group = std::vector<RankPosition>;  // in the order of the group's ranks

  // Prints a measured time, which is only as exact as the interval: from 10 s on in whole seconds.
  static std::string whole_seconds(Time time) {
    return time < std::chrono::seconds(10)
               ? str(Seconds{time})
               : str(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
  }

  bool all_have_left(const std::pair<const GroupKey, Group>& one) const {
    const auto& [key, group] = one;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!group[i].left && !of(key.first[i]).gone) return false;
    }
    return true;
  }
  void erase_left_groups() {
    std::erase_if(groups_, [this](const auto& one) {
      const bool ends = all_have_left(one);
      if (ends) stuck_.erase(one.first);
      return ends;
    });
  }

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  static std::size_t index(const GroupKey& key, int rank) {
    return static_cast<std::size_t>(lockstep::detail::find(key.first, rank) - key.first.begin());
  }
  // True if a rank at position `one` waits in its collective for a rank at `other`.
  static bool waits_for(const Position& one, const Position& other) {
    return one.inside &&
           (other.number < one.number || (other.number == one.number && other.inside));
  }

  void note(Fault::Kind kind, int rank, std::string text) {
    Rank& state = of(rank);
    if (state.told && kind != Fault::Kind::silent) return;
    if (std::exchange(state.faulty, true)) return;
    faults_.push_back({kind, rank, std::move(text)});
  }

  // "; by the last heartbeats, rank 0 waits for it in collective #17, ...", or nothing. Heartbeats
  // can be an interval old, in which the rank may have gone through many collectives.
  std::string who_waits_for(int rank) const {
    for (const auto& [key, group] : groups_) {
      const std::size_t at = index(key, rank);
      if (at == group.size()) continue;
      const std::string waiting = who_waits(key, group, rank);
      if (!waiting.empty()) return "; by the last heartbeats, " + waiting;
    }
    return {};
  }
  std::string who_waits(const GroupKey& key, const Group& group, int rank) const {
    constexpr std::size_t kListed = 4;
    const Position& awaited = group[index(key, rank)].position;
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (key.first[i] != rank && waits_for(group[i].position, awaited)) waiting.push_back(i);
    }
    if (waiting.empty()) return {};
    std::string text = waiting.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(waiting.size(), kListed); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(key.first[waiting[i]]);
    }
    if (waiting.size() > kListed) text += str(" and ", waiting.size() - kListed, " more");
    const Position& first = group[waiting.front()].position;
    text += waiting.size() == 1 ? " waits for it in " : " wait for it in ";
    return text + describe(first.number, first.call) + name_of(key);
  }
  std::string name_of(const GroupKey& key) const { return name_of(key, size()); }

  // What a rank for which others wait is doing.
  std::string activity_of(int rank, const Position& here, Time since, Time now) const {
    for (const auto& [key, group] : groups_) {
      const std::size_t at = index(key, rank);
      if (at == group.size() || !group[at].position.inside) continue;
      const Position& there = group[at].position;
      return str("it has been in ", describe(there.number, there.call), name_of(key), " for ",
                 whole_seconds(now - group[at].since));
    }
    if (here.number == 0) return "it has been in no collective yet";
    return str("it is in no collective, and left its last one, #", here.number, ", ",
               whole_seconds(now - since), " ago");
  }

  void find_mismatch(const GroupKey& key, const Group& group, int rank) {
    const Position& mine = group[index(key, rank)].position;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Position& other = group[i].position;
      if (!other.inside || other.number != mine.number || other.call == mine.call) continue;
      note(Fault::Kind::mismatched, rank,
           str("rank ", rank, " is in ", describe(mine.number, mine.call), name_of(key),
               ", but rank ", key.first[i], " is in ", other.call,
               ": all ranks must call the same"));
    }
  }

  void find_late(const GroupKey& key, const Group& group, Time now) {
    // The furthest behind of those that have waited too long.
    std::size_t found = group.size();
    for (std::size_t i = 0; i < group.size(); ++i) {
      const auto& [position, since, left] = group[i];
      if (!position.inside || now - since <= options_.collective_timeout) continue;
      if (found == group.size() || position.number < group[found].position.number) found = i;
    }
    if (found == group.size()) return;
    const Position& waiting = group[found].position;
    const std::string time = whole_seconds(now - group[found].since);
    bool any_late = false;
    std::string ahead;  // what the first rank that is further is doing
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Position& other = group[i].position;
      const int rank = key.first[i];
      if (other.number < waiting.number) {
        any_late = true;
        note(Fault::Kind::late, rank,
             str("rank ", rank, " has not come to a collective for ", time, "; ",
                 who_waits(key, group, rank), "; ", activity_of(rank, other, group[i].since, now)));
      } else if (ahead.empty() && (other.number > waiting.number || !other.inside)) {
        ahead = str("while rank ", rank,
                    other.inside ? " is in " + describe(other.number, other.call)
                                 : str(" has ended collective #", other.number),
                    ": if the ranks' calls differ, LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL says where");
      }
    }
    const int rank = key.first[found];
    if (any_late || !stuck_[key].insert(waiting.number).second || of(rank).told) return;
    if (ahead.empty()) ahead = "which all ranks of its group have come to";
    faults_.push_back({Fault::Kind::stuck, -1,
                       str("rank ", rank, " has been in ", describe(waiting.number, waiting.call),
                           name_of(key), " for ", time, ", ", ahead)});
  }

  Time join_timeout_;
  WatchdogOptions options_;
  std::vector<Rank> ranks_;
  std::uint32_t ends_ = 0;
  std::map<GroupKey, Group> groups_;
  std::map<GroupKey, std::set<std::uint64_t>> stuck_;  // by their numbers
  std::vector<Fault> faults_;
};

}  // namespace lockstep::distributed::detail
