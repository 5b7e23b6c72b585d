// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::distributed {
namespace watchdog_ledger_test {

using namespace std::chrono_literals;
using detail::WatchdogLedger;
using Kind = Fault::Kind;

const WatchdogLedger::GroupKey kAll{{0, 1, 2}, 0};
const std::string kSum = "all_reduce(sum) of 4 x f32";

// Three ranks that have come at the start.
class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    for (int rank = 0; rank < ledger.size(); ++rank) ledger.note_frame(rank, 0s);
  }

  // A heartbeat of a rank that has just come where it is, and knows of all ends.
  void inside(int rank, std::uint64_t number, WatchdogLedger::Time now,
              const std::string& call = kSum, const WatchdogLedger::GroupKey& group = kAll) {
    ledger.report(rank, group, {number, true, 0ms, call}, now);
    unchanged(rank, now, ledger.ends());
  }
  void outside(int rank, std::uint64_t number, WatchdogLedger::Time now,
               const WatchdogLedger::GroupKey& group = kAll) {
    ledger.report(rank, group, {number}, now);
    unchanged(rank, now, ledger.ends());
  }
  // A heartbeat of a rank that is where it was, and knew of so many ends when it sent this.
  void unchanged(int rank, WatchdogLedger::Time now, std::uint32_t known) {
    ledger.note_frame(rank, now);
    ledger.find_left(rank, known);
  }
  void all_heard(WatchdogLedger::Time now) {
    for (int rank = 0; rank < ledger.size(); ++rank) ledger.note_frame(rank, now);
    ledger.examine(now);
  }

  // The texts of what was found.
  std::vector<std::string> found() const {
    std::vector<std::string> texts;
    for (const Fault& fault : ledger.faults()) texts.push_back(fault.text);
    return texts;
  }
  using Texts = std::vector<std::string>;

  WatchdogLedger ledger{3, 5min, {.heartbeat_timeout = 10s, .collective_timeout = 60s}};
};

TEST_F(Ledger, ADeadRankIsNamedWithWhoWaitsForIt) {
  inside(0, 17, 1s);
  outside(2, 16, 1s);
  ledger.lose(2, "Connection reset by peer");
  EXPECT_EQ(found(), Texts{"rank 2 has died: its connection was lost (Connection reset by peer); "
                           "by the last heartbeats, rank 0 waits for it in collective #17, "
                           "all_reduce(sum) of 4 x f32"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::died);
  EXPECT_EQ(ledger.faults()[0].rank, 2);
}

TEST_F(Ledger, AGroupIsForgottenWhenAllOfItsRanksHaveDoneWithIt) {
  const WatchdogLedger::GroupKey pair{{2, 0}, 7};
  outside(0, 3, 1s, pair);
  inside(2, 4, 1s, kSum, pair);
  ledger.leave_group(0, pair);
  EXPECT_EQ(ledger.numbers(0), (std::map<WatchdogLedger::GroupKey, std::uint64_t>{{pair, 3}}));
  all_heard(100s);
  ASSERT_EQ(ledger.faults().size(), 1U);  // rank 2 still waits in it
  EXPECT_EQ(ledger.faults()[0].rank, 0);
  ledger.leave_group(2, pair);
  EXPECT_TRUE(ledger.numbers(0).empty());
  EXPECT_TRUE(ledger.numbers(2).empty());
  ledger.leave_group(2, pair);  // there is no such group
}

TEST_F(Ledger, ARankThatIsGoneHasDoneWithItsGroups) {
  const WatchdogLedger::GroupKey pair{{1, 0}, 0};
  for (const int rank : {0, 1}) outside(rank, 3, 1s, pair);
  ledger.leave_group(0, pair);
  EXPECT_EQ(ledger.numbers(0).size(), 1U);
  ledger.leave(1);
  EXPECT_TRUE(ledger.numbers(0).empty());
  EXPECT_EQ(found(), Texts());
}

// It may have died in the collective itself.
TEST_F(Ledger, WhoIsInTheSameCollectiveWaitsToo) {
  for (const int rank : {0, 1, 2}) inside(rank, 5, 1s);
  ledger.lose(1, "gone");
  EXPECT_EQ(found(), Texts{"rank 1 has died: its connection was lost (gone); by the last "
                           "heartbeats, ranks 0, 2 wait for "
                           "it in collective #5, all_reduce(sum) of 4 x f32"});
}

// A broadcast's root may have left a collective in which the others still are.
TEST_F(Ledger, WhoHasDoneItsPartIsNotWaitedFor) {
  inside(0, 5, 1s);
  outside(1, 5, 1s);
  ledger.lose(1, "gone");
  EXPECT_EQ(found(), Texts{"rank 1 has died: its connection was lost (gone)"});
}

TEST_F(Ledger, ARankThatDoesNotAnswerIsNamed) {
  inside(0, 17, 1s);
  for (const auto now : {2s, 8s, 10s}) {
    ledger.note_frame(0, now);
    ledger.note_frame(1, now);
    ledger.examine(now);
    EXPECT_EQ(found(), Texts{});
  }
  ledger.note_frame(2, 1s);
  ledger.note_frame(0, 12s);
  ledger.note_frame(1, 12s);
  ledger.examine(12s);
  ledger.examine(13s);
  EXPECT_EQ(found(), Texts{"rank 2 has not answered for 11 s: it is stopped, or its machine is "
                           "lost; by the last heartbeats, rank 0 waits for it in collective #17, "
                           "all_reduce(sum) of 4 x f32"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::silent);
}

TEST_F(Ledger, ARankThatLeavesACollectiveOutIsNamedWithWhatItDoes) {
  outside(1, 16, 1s);
  outside(2, 17, 2s);
  inside(0, 17, 2s);
  all_heard(62s);
  EXPECT_EQ(found(), Texts{});
  all_heard(63s);
  EXPECT_EQ(found(), Texts{"rank 1 has not come to a collective for 61 s; rank 0 waits for it in "
                           "collective #17, all_reduce(sum) of 4 x f32; it is in no collective, "
                           "and left its last one, #16, 62 s ago"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::late);
}

TEST_F(Ledger, TheAgeThatARankReportsCounts) {
  ledger.report(0, kAll, {1, true, 50s, kSum}, 51s);
  all_heard(60s);
  EXPECT_EQ(found(), Texts{});
  all_heard(62s);
  ASSERT_EQ(found().size(), 2U);
  EXPECT_NE(found()[0].find("rank 1 has not come"), std::string::npos);
  EXPECT_NE(found()[0].find("it has been in no collective yet"), std::string::npos);
  EXPECT_NE(found()[1].find("rank 2 has not come"), std::string::npos);
}

TEST_F(Ledger, ALongComputationIsNoFault) {
  for (int rank = 0; rank < 3; ++rank) outside(rank, 3, 0s);
  for (auto now = 5s; now < 1000s; now += 5s) all_heard(now);
  EXPECT_EQ(found(), Texts{});
}

TEST_F(Ledger, WaitingBrieflyAgainAndAgainIsNoFault) {
  for (std::uint64_t i = 1; i < 100; ++i) {
    inside(0, i, 20s * i);
    all_heard(20s * i + 15s);
    inside(1, i, 20s * i + 15s);
    inside(2, i, 20s * i + 15s);
  }
  EXPECT_EQ(found(), Texts{});
}

TEST_F(Ledger, ACollectiveThatAllAreInIsNamedWithoutARank) {
  for (const int rank : {0, 1, 2}) inside(rank, 8, 1s, "barrier");
  all_heard(62s);
  all_heard(70s);
  EXPECT_EQ(found(), Texts{"rank 0 has been in collective #8, barrier for 61 s, which all ranks of "
                           "its group have come to"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::stuck);
  EXPECT_EQ(ledger.faults()[0].rank, -1);
}

// It may have left the collective out, and counts another one in its place.
TEST_F(Ledger, ARankThatIsAheadOfOneThatWaitsIsNamed) {
  for (const int rank : {0, 1}) inside(rank, 8, 1s, "barrier");
  outside(2, 8, 1s);
  all_heard(62s);
  EXPECT_EQ(found(),
            Texts{"rank 0 has been in collective #8, barrier for 61 s, while rank 2 has ended "
                  "collective #8: if the ranks' calls differ, LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL "
                  "says where"});
}

TEST_F(Ledger, ARankThatIsInALaterCollectiveThanOneThatWaitsIsNamed) {
  for (const int rank : {0, 1}) inside(rank, 8, 1s, "barrier");
  inside(2, 9, 1s, "all_reduce");
  all_heard(62s);
  EXPECT_EQ(found(), Texts{"rank 0 has been in collective #8, barrier for 61 s, while rank 2 is in "
                           "collective #9, all_reduce: if the ranks' calls differ, "
                           "LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL says where"});
}

TEST_F(Ledger, WhatIsKnownOfAGroupThatHasEndedIsForgotten) {
  const WatchdogLedger::GroupKey pair{{2, 0}, 7};
  const auto times_stuck = [&](WatchdogLedger::Time now) {
    for (const int rank : {0, 2}) inside(rank, 1, now, "barrier", pair);
    all_heard(now + 61s);
    const auto& faults = ledger.faults();
    return std::count_if(faults.begin(), faults.end(),
                         [](const Fault& fault) { return fault.kind == Kind::stuck; });
  };
  EXPECT_EQ(times_stuck(1s), 1);
  EXPECT_EQ(times_stuck(100s), 1);
  for (const int rank : {2, 0}) ledger.leave_group(rank, pair);
  EXPECT_EQ(times_stuck(200s), 2);
  ledger.leave_group(0, pair);
  ledger.leave(2);
  EXPECT_TRUE(ledger.numbers(0).empty());
  EXPECT_EQ(times_stuck(300s), 3);
}

TEST_F(Ledger, ARankThatEndsIsNamedByTheFirstWhoKnowsItAndStillWaits) {
  outside(1, 16, 1s);
  inside(0, 17, 2s);
  ledger.leave(1);
  unchanged(0, 3s, 0);  // may be older than the end
  EXPECT_EQ(found(), Texts());
  unchanged(0, 4s, 1);
  EXPECT_EQ(found(), Texts{"rank 1 has ended after collective #16; rank 0 waits for it in "
                           "collective #17, all_reduce(sum) of 4 x f32"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::left);
}

// Rank 1 has left a group in whose collective #17 the others were; they have caught the error, and
// all end.
TEST_F(Ledger, WhereARankWasBeforeAnotherEndedAccusesNobody) {
  outside(1, 16, 1s);
  inside(0, 17, 1500ms);
  inside(2, 17, 1700ms);
  ledger.finish(1);
  unchanged(0, 2500ms, 0);  // under way when rank 1 ended
  outside(2, 17, 2600ms);
  ledger.finish(2);
  outside(0, 17, 3500ms);
  ledger.finish(0);
  EXPECT_EQ(found(), Texts());
}

TEST_F(Ledger, OfTwoEndsAHeartbeatTellsOfThoseItKnows) {
  for (const int rank : {1, 2}) outside(rank, 16, 1s);
  inside(0, 17, 2s);
  ledger.finish(2);
  ledger.finish(1);
  ledger.leave(2);  // the same end
  unchanged(0, 3s, 1);
  ASSERT_EQ(ledger.faults().size(), 1U);
  EXPECT_EQ(ledger.faults()[0].rank, 2);
  unchanged(0, 4s, 2);
  ASSERT_EQ(ledger.faults().size(), 2U);
  EXPECT_EQ(ledger.faults()[1].rank, 1);
}

TEST_F(Ledger, ARankThatHasEndedIsNamedWhenSomeoneComesToWaitForIt) {
  outside(1, 16, 1s);
  ledger.leave(1);
  outside(0, 16, 2s);
  inside(2, 16, 2s);
  EXPECT_EQ(found(), Texts{});
  inside(0, 17, 3s);
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(ledger.faults()[0].rank, 1);
}

TEST_F(Ledger, ARankThatHasFinishedIsNamedAsOneThatHasEndedAndMayStillFail) {
  outside(1, 16, 1s);
  ledger.finish(1);
  inside(2, 16, 2s);
  EXPECT_EQ(found(), Texts{});
  inside(0, 17, 3s);
  EXPECT_EQ(found(), Texts{"rank 1 has ended after collective #16; rank 0 waits for it in "
                           "collective #17, all_reduce(sum) of 4 x f32"});
  outside(2, 17, 4s);
  ledger.finish(2);
  ledger.lose(2, "gone");
  ASSERT_EQ(ledger.faults().size(), 2U);
  EXPECT_EQ(ledger.faults()[1].kind, Kind::died);
}

TEST_F(Ledger, RanksThatEndInAnyOrderAreNoFault) {
  for (const int rank : {1, 2, 0}) {
    outside(rank, 16, 1s);
    ledger.leave(rank);
    ledger.lose(rank, "after the goodbye");
    ledger.examine(9s);
  }
  EXPECT_EQ(found(), Texts{});
}

TEST_F(Ledger, AnotherCollectiveIsAFaultAtOnce) {
  inside(0, 3, 1s);
  inside(1, 3, 1s);
  inside(2, 3, 1s, "all_reduce(sum) of 4 x f64");
  EXPECT_EQ(found(), Texts{"rank 2 is in collective #3, all_reduce(sum) of 4 x f64, but rank 0 is "
                           "in all_reduce(sum) of 4 x f32: all ranks must call the same"});
  EXPECT_EQ(ledger.faults()[0].kind, Kind::mismatched);
}

TEST_F(Ledger, ARankThatHasNeverComeIsNamed) {
  WatchdogLedger fresh(2, 60s, {.heartbeat_timeout = 10s, .collective_timeout = 60s});
  fresh.note_frame(0, 5s);
  fresh.note_frame(0, 61s);
  fresh.examine(60s);
  EXPECT_TRUE(fresh.faults().empty());
  fresh.examine(61s);
  ASSERT_EQ(fresh.faults().size(), 1U);
  EXPECT_EQ(fresh.faults()[0].kind, Kind::absent);
  EXPECT_EQ(fresh.faults()[0].text,
            "rank 1 has not come: it has not connected to the watchdog within 60 s");
}

TEST_F(Ledger, TwoRanksThatFailAreBothListed) {
  ledger.abort(1, "ShapeError: no");
  ledger.lose(2, "gone");
  ledger.lose(1, "gone");  // as follows from its failure
  EXPECT_EQ(found(), (Texts{"rank 1 has failed: ShapeError: no",
                            "rank 2 has died: its connection was lost (gone)"}));
}

TEST_F(Ledger, WhatARankDoesThatKnowsOfAFaultIsNone) {
  inside(0, 2, 1s);
  ledger.lose(2, "gone");
  ledger.note_told(0);
  ledger.note_told(1);
  ledger.abort(0, "rank 2 has died");
  ledger.lose(0, "gone");
  ledger.leave(1);
  EXPECT_EQ(found().size(), 1U);
}

TEST_F(Ledger, ARankThatStopsAfterAFaultIsOne) {
  ledger.lose(2, "gone");
  ledger.note_told(1);
  ledger.note_frame(0, 11s);
  ledger.examine(11s);
  ASSERT_EQ(found().size(), 2U);
  EXPECT_EQ(ledger.faults()[1].rank, 1);
  EXPECT_EQ(ledger.faults()[1].kind, Kind::silent);
}

// What a group's ranks do concerns nobody else.
TEST_F(Ledger, GroupsAreWatchedEachByItself) {
  const WatchdogLedger::GroupKey pair{{2, 0}, 0};
  const WatchdogLedger::GroupKey second{{2, 0}, 1};
  inside(0, 1, 1s, "barrier", pair);
  outside(2, 5, 1s, second);
  all_heard(63s);
  EXPECT_EQ(found(), Texts{"rank 2 has not come to a collective for 62 s; rank 0 waits for it in "
                           "collective #1, barrier of the group of ranks 2, 0; it has been in no "
                           "collective yet"});
  using Numbers = std::map<WatchdogLedger::GroupKey, std::uint64_t>;
  EXPECT_EQ(ledger.numbers(2), (Numbers{{pair, 0}, {second, 5}}));
  EXPECT_EQ(ledger.numbers(1), Numbers{});
}

TEST_F(Ledger, ARankInAnotherGroupsCollectiveIsFoundThere) {
  const WatchdogLedger::GroupKey pair{{0, 1}, 0};
  inside(0, 4, 1s);
  inside(2, 4, 1s);
  inside(1, 9, 3s, "broadcast of 2 x f32 with root 0", pair);
  all_heard(62s);
  EXPECT_EQ(found(), Texts{"rank 1 has not come to a collective for 61 s; ranks 0, 2 wait for it "
                           "in collective #4, all_reduce(sum) of 4 x f32; it has been in "
                           "collective #9, broadcast of 2 x f32 with root 0 of the group of ranks "
                           "0, 1 for 59 s"});
}

TEST_F(Ledger, TheGroupIsNamedInEachFault) {
  const WatchdogLedger::GroupKey pair{{2, 0}, 0};
  const WatchdogLedger::GroupKey again{{2, 0}, 1};
  const WatchdogLedger::GroupKey all{{0, 1, 2}, 1};
  for (const int rank : {0, 2}) inside(rank, 1, 1s, "barrier", pair);
  all_heard(62s);
  inside(0, 3, 62s, "barrier", again);
  inside(2, 3, 62s, "reduce", again);
  inside(0, 4, 62s, "barrier", all);
  inside(1, 4, 62s, "reduce", all);
  EXPECT_EQ(found(), (Texts{"rank 2 has been in collective #1, barrier of the group of ranks 2, 0 "
                            "for 61 s, which all ranks of its group have come to",
                            "rank 2 is in collective #3, reduce of group 2 of ranks 2, 0, but rank "
                            "0 is in barrier: all ranks must call the same",
                            "rank 1 is in collective #4, reduce of group 2 of all ranks, but rank "
                            "0 is in barrier: all ranks must call the same"}));
}

// Of two that wait, the one that is further behind tells who is missing.
TEST_F(Ledger, TheOneFurthestBehindIsNamed) {
  inside(0, 7, 1s);
  inside(1, 6, 1s);
  outside(2, 5, 1s);
  all_heard(62s);
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(ledger.faults()[0].rank, 2);
}

}  // namespace watchdog_ledger_test
}  // namespace lockstep::distributed
