// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/deadline.hpp>
#include <lockstep/distributed/watchdog_options.hpp>
#include <lockstep/distributed/watchdog_progress.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed {

// What a watchdog has found.
struct Fault {
  enum class Kind : std::uint8_t {
    died,        // its process has ended without a goodbye
    silent,      // no heartbeat has come for too long
    absent,      // it has never come
    threw,       // it has said so itself
    late,        // others wait in a collective that it has not come to
    left,        // others wait in a collective, but it has ended, or finished, in good order
    mismatched,  // it is in another collective than the others, which is their next one too
    stuck,       // all ranks are in a collective that does not end
  };

  Kind kind = Kind::died;
  int rank = -1;     // -1: no rank in particular
  std::string text;  // "rank 2 has died: ..."; names the rank and the collective that waits for it
};

namespace detail {

// All that rank 0 knows of the ranks, and what follows from it. It has neither clock nor
// connections: it is told what has come, and when.
//
// The first fault of a rank is noted, and no other of it. What a rank does that has been told of a
// fault follows from that, and is none.
class WatchdogLedger {
 public:
  // Since the watch began.
  using Time = std::chrono::milliseconds;

  // A group's ranks, and how many groups of the same ranks there were before it.
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

  void join(int rank, Time now) {
    of(rank).joined = true;
    of(rank).heard = now;
  }
  void hear(int rank, Time now) { of(rank).heard = now; }

  void report(int rank, const GroupKey& key, Position position, Time now) {
    Group& group = groups_[key];
    if (group.empty()) group.resize(key.first.size());
    Place& place = group[index(key, rank)];
    place.position = std::move(position);
    place.since = now - place.position.age;
    if (!place.position.inside) return;
    find_mismatch(key, group, rank);
    find_left(key, group, rank);
  }

  // The rank comes to no collective of the group any more. One that none of its ranks comes to is
  // over, and nothing of it is kept.
  void forget(int rank, const GroupKey& key) {
    const auto found = groups_.find(key);
    if (found == groups_.end()) return;
    found->second[index(key, rank)].forgotten = true;
    if (is_over(*found)) erase_group(found);
  }

  // The rank has ended in good order.
  void leave(int rank) {
    of(rank).gone = true;
    finish(rank);
    forget_what_is_over();
  }
  // It comes to no collective any more.
  void finish(int rank) {
    of(rank).finished = true;
    for (const auto& [key, group] : groups_) {
      for (const int other : key.first) {
        if (group[index(key, other)].position.inside) find_left(key, group, other);
      }
    }
  }
  // Its connection has ended, without a goodbye.
  void lose(int rank, const std::string& reason) {
    if (of(rank).gone) return;
    note(Fault::Kind::died, rank,
         str("rank ", rank, " has died: its connection was lost (", reason, ')',
             who_waits_for(rank)));
    of(rank).gone = true;
    forget_what_is_over();
  }
  void abort(int rank, const std::string& reason) {
    note(Fault::Kind::threw, rank, str("rank ", rank, " has failed: ", reason));
  }
  // The rank knows of a fault.
  void tell(int rank) { of(rank).told = true; }

  // Looks for what time brings about.
  void examine(Time now) {
    for (int rank = 0; rank < size(); ++rank) {
      const Rank& state = of(rank);
      if (state.gone) continue;
      if (!state.joined && now > join_timeout_) {
        note(Fault::Kind::absent, rank,
             str("rank ", rank, " has not come: it has not connected to the watchdog within ",
                 Seconds{join_timeout_}, who_waits_for(rank)));
      } else if (state.joined && now - state.heard > options_.heartbeat_timeout) {
        note(Fault::Kind::silent, rank,
             str("rank ", rank, " has not answered for ", whole_seconds(now - state.heard),
                 ": it is stopped, or its machine is lost", who_waits_for(rank)));
      }
    }
    for (const auto& [key, group] : groups_) find_late(key, group, now);
  }

  // In the order in which they were found.
  const std::vector<Fault>& faults() const { return faults_; }

  // How far a rank has come: its last collective in each group that it is in.
  std::map<GroupKey, std::uint64_t> numbers(int rank) const {
    std::map<GroupKey, std::uint64_t> all;
    for (const auto& [key, group] : groups_) {
      const std::size_t place = index(key, rank);
      if (place < group.size()) all.emplace(key, group[place].position.number);
    }
    return all;
  }

 private:
  struct Rank {
    bool joined = false;
    bool gone = false;
    bool finished = false;
    bool told = false;
    bool faulty = false;
    Time heard{0};
  };
  struct Place {
    Position position;
    Time since{0};
    bool forgotten = false;
  };
  using Group = std::vector<Place>;  // in the order of the group's ranks
  using Groups = std::map<GroupKey, Group>;

  template <class... Parts>
  static std::string str(const Parts&... parts) {
    return lockstep::detail::str(parts...);
  }
  // Times that were measured are only as good as the interval.
  static std::string whole_seconds(Time time) {
    return time < std::chrono::seconds(10)
               ? str(Seconds{time})
               : str(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
  }

  bool is_over(const std::pair<const GroupKey, Group>& one) const {
    const auto& [key, group] = one;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!group[i].forgotten && !of(key.first[i]).gone) return false;
    }
    return true;
  }
  void forget_what_is_over() {
    for (auto one = groups_.begin(); one != groups_.end();) {
      one = is_over(*one) ? erase_group(one) : std::next(one);
    }
  }
  // Returns what is behind it.
  Groups::iterator erase_group(Groups::iterator group) {
    const GroupKey& key = group->first;
    stuck_.erase(stuck_.lower_bound({key, 0}), stuck_.upper_bound({key, ~std::uint64_t{0}}));
    return groups_.erase(group);
  }

  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  static std::size_t index(const GroupKey& key, int rank) {
    return static_cast<std::size_t>(std::find(key.first.begin(), key.first.end(), rank) -
                                    key.first.begin());
  }
  // True if one who waits at the first place waits for the second's rank.
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

  // "; rank 0 waits for it in collective #17, ...", or nothing.
  std::string who_waits_for(int rank) const {
    for (const auto& [key, group] : groups_) {
      const std::size_t place = index(key, rank);
      if (place == group.size()) continue;
      const std::string waiting = who_waits(key, group, rank);
      if (!waiting.empty()) return "; " + waiting;
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
  // Which group, if it is not that of all ranks.
  std::string name_of(const GroupKey& key) const {
    if (key.first.size() == ranks_.size()) return {};
    std::string text = " of the group of ranks ";
    for (std::size_t i = 0; i < key.first.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(key.first[i]);
    }
    return text;
  }

  // What a rank that others wait for does instead.
  std::string what_it_does(int rank, const Position& here, Time since, Time now) const {
    for (const auto& [key, group] : groups_) {
      const std::size_t place = index(key, rank);
      if (place == group.size() || !group[place].position.inside) continue;
      const Position& there = group[place].position;
      return str("it has been in ", describe(there.number, there.call), " for ",
                 whole_seconds(now - group[place].since));
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
           str("rank ", rank, " is in ", describe(mine.number, mine.call), ", but rank ",
               key.first[i], " is in ", other.call, ": all ranks must call the same"));
    }
  }

  // Whether `rank` waits for one that has finished.
  void find_left(const GroupKey& key, const Group& group, int rank) {
    const Position& mine = group[index(key, rank)].position;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const int other = key.first[i];
      if (!of(other).finished || other == rank || !waits_for(mine, group[i].position)) continue;
      note(Fault::Kind::left, other,
           str("rank ", other, " has ended", after(group[i].position.number), "; ",
               who_waits(key, group, other)));
    }
  }

  void find_late(const GroupKey& key, const Group& group, Time now) {
    const Place* waiting = nullptr;  // of those that have waited for too long, the furthest behind
    int rank_waiting = -1;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Place& place = group[i];
      if (!place.position.inside || now - place.since <= options_.collective_timeout) continue;
      if (waiting && waiting->position.number <= place.position.number) continue;
      waiting = &place;
      rank_waiting = key.first[i];
    }
    if (!waiting) return;
    bool found = false;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Position& other = group[i].position;
      if (other.number >= waiting->position.number) continue;
      found = true;
      const int rank = key.first[i];
      note(Fault::Kind::late, rank,
           str("rank ", rank, " has not come to a collective for ",
               whole_seconds(now - waiting->since), "; ", who_waits(key, group, rank), "; ",
               what_it_does(rank, other, group[i].since, now)));
    }
    if (found || !stuck_.insert({key, waiting->position.number}).second) return;
    if (of(rank_waiting).told) return;
    faults_.push_back(
        {Fault::Kind::stuck, -1,
         str("rank ", rank_waiting, " has been in ",
             describe(waiting->position.number, waiting->position.call), " for ",
             whole_seconds(now - waiting->since), ", which all ranks of its group have come to")});
  }

  Time join_timeout_;
  WatchdogOptions options_;
  std::vector<Rank> ranks_;
  Groups groups_;
  std::set<std::pair<GroupKey, std::uint64_t>> stuck_;
  std::vector<Fault> faults_;
};

}  // namespace detail

}  // namespace lockstep::distributed
