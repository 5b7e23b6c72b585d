// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/allocation_faults.hpp"
#include "support/devices.hpp"
#include "support/error_of.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace dist = lockstep::distributed;
using ls::testing::end_allocation_faults;
using ls::testing::error_of;
using ls::testing::fail_allocation;
using ls::testing::first_devices;
using ls::testing::throws;

namespace rank_faults_test {

const std::string kGone = "rank 1 on device cpu:1 has thrown std::bad_alloc";
const std::vector<int> kBoth{1, 0};

ls::Tensor ones(const dist::ProcessGroup& group, const ls::Shape& shape) {
  return ls::full(shape, 1, {.device = group.device()});
}

// An operation that all ranks come to, on tensors that are made before.
using Operation = std::function<void()>;
using Prepare = std::function<Operation(const dist::ProcessGroup&)>;

struct Case {
  const char* name;
  Prepare prepare;
};

// An exact copy of what the operation does comes out of the same tensors, whatever failed before.
std::vector<Case> cases() {
  using Group = dist::ProcessGroup;
  const auto reduce = [](const ls::Shape& shape) {
    return [shape](const Group& group) -> Operation {
      return [group, tensor = ones(group, shape)] { group.all_reduce(tensor).wait(); };
    };
  };
  return {
      {"all_reduce", reduce({4})},
      {"large all_reduce", reduce({5000})},
      {"all_reduce of columns",
       [](const Group& group) -> Operation {
         const ls::Tensor columns = ones(group, {4, 6}).t().narrow(0, 1, 2);
         return [group, columns] { group.all_reduce(columns).wait(); };
       }},
      {"broadcast",
       [](const Group& group) -> Operation {
         return [group, tensor = ones(group, {3})] { group.broadcast(tensor, 1).wait(); };
       }},
      {"all_gather",
       [](const Group& group) -> Operation {
         const std::vector<ls::Tensor> outputs{ones(group, {2}), ones(group, {2})};
         return [group, outputs, input = ones(group, {2})] {
           group.all_gather(outputs, input).wait();
         };
       }},
      {"reduce_scatter_tensor",
       [](const Group& group) -> Operation {
         return [group, output = ones(group, {2}), input = ones(group, {4})] {
           group.reduce_scatter_tensor(output, input).wait();
         };
       }},
      {"barrier",
       [](const Group& group) -> Operation { return [group] { group.barrier().wait(); }; }},
      {"message",
       [](const Group& group) -> Operation {
         return [group, tensor = ones(group, {3})] {
           (group.rank() == 1 ? group.send(tensor, 0) : group.recv(tensor, 1)).wait();
         };
       }},
      {"new_group",
       [](const Group& group) -> Operation { return [group] { (void)group.new_group(kBoth); }; }},
  };
}

// Where rank 1's allocations fail: in the thread that issues, or the one that communicates.
enum class Where { issuing, communicating };

void begin_faults(const dist::ProcessGroup& group, Where where, std::uint64_t n, bool lasting) {
  if (where == Where::issuing) return fail_allocation(n, lasting);
  group.impl()->thread()->issue(
      ls::detail::Task([n, lasting]() noexcept { fail_allocation(n, lasting); }));
}
bool end_faults(const dist::ProcessGroup& group, Where where) {
  if (where == Where::issuing) return end_allocation_faults();
  std::atomic<bool> met{false};
  group.impl()->thread()->issue(
      ls::detail::Task([&met]() noexcept { met = end_allocation_faults(); }));
  group.impl()->thread()->drain();
  return met;
}

// Rank 1's allocation n fails within the operation; then both ranks go on as if nothing had been.
// Returns whether there was an allocation n.
bool survive(const Case& each, Where where, std::uint64_t n, bool lasting) {
  bool met = false;
  bool told = false;
  std::string failed;
  std::vector<std::string> later(2);
  std::vector<float> sum;
  const auto body = [&](const dist::ProcessGroup& group) {
    const ls::Tensor next = ones(group, {4});
    const auto next_collective = [&] { (void)group.blocking().all_reduce(next); };
    const Operation operation = each.prepare(group);
    if (group.rank() == 1) {
      begin_faults(group, where, n, lasting);
      failed = error_of(operation);
      met = end_faults(group, where);
    } else {
      told = error_of(operation).find(kGone) != std::string::npos;
    }
    later[static_cast<std::size_t>(group.rank())] = error_of(next_collective);
    if (group.rank() == 0) sum = next.to_vector<float>();
  };
  dist::run(first_devices(2), body);
  if (failed.empty()) {  // nothing failed, or it did without
    EXPECT_EQ(later, std::vector<std::string>(2));
    EXPECT_EQ(sum, std::vector<float>(4, 2));
    EXPECT_FALSE(told);
    return met;
  }
  EXPECT_TRUE(met);
  EXPECT_EQ(failed, "std::bad_alloc");
  for (const std::string& text : later) EXPECT_NE(text.find(kGone), std::string::npos) << text;
  EXPECT_EQ(sum, std::vector<float>(4, 1));
  return true;
}

TEST(RankFaults, AnAllocationThatFailsInAnOperationEndsTheGroup) {
  std::uint64_t points = 0;
  for (const Case& each : cases()) {
    for (const Where where : {Where::issuing, Where::communicating}) {
      for (const bool lasting : {false, true}) {
        SCOPED_TRACE(std::string(each.name) + (where == Where::issuing ? "" : ", communicating") +
                     (lasting ? ", lasting" : ""));
        std::uint64_t n = 0;
        while (survive(each, where, n, lasting) && !::testing::Test::HasFailure()) ++n;
        points += n;
      }
    }
  }
  std::cout << points << " points\n";
  EXPECT_GT(points, 50U);
}

// Rank 1's first allocation fails in an operation of one group. What the next operations of the
// whole group and of a part of it end with, on all ranks alike.
struct Ends {
  std::string whole;
  std::string part;
};
std::vector<Ends> ends_after_a_fault(bool in_part) {
  std::vector<Ends> ends(3);
  dist::run(first_devices(3), [&](const dist::ProcessGroup& group) {
    const dist::ProcessGroup part = group.new_group({0, 1});
    if (group.rank() < 2) {
      const dist::ProcessGroup& faulty = in_part ? part : group;
      const ls::Tensor tensor = ones(group, {4});
      if (group.rank() == 1) fail_allocation(0, false);
      const std::string met = error_of([&] { faulty.all_reduce(tensor).wait(); });
      EXPECT_EQ(end_allocation_faults(), group.rank() == 1);
      EXPECT_FALSE(met.empty());
    }
    Ends& mine = ends[static_cast<std::size_t>(group.rank())];
    const auto sum = [&](const dist::ProcessGroup& of) {
      const ls::Tensor tensor = ones(group, {4});
      return error_of([&] {
        of.all_reduce(tensor).wait();
        EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(4, static_cast<float>(of.size())));
      });
    };
    mine.whole = sum(group);
    if (part.defined()) mine.part = sum(part);
  });
  return ends;
}

TEST(RankFaults, AGroupThatIsLeftTakesItsPartsAlongAndNoOther) {
  const std::vector<Ends> after_whole = ends_after_a_fault(false);
  for (const Ends& end : after_whole) {
    EXPECT_NE(end.whole.find(kGone), std::string::npos) << end.whole;
  }
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_NE(after_whole[rank].part.find(kGone), std::string::npos) << after_whole[rank].part;
  }
  const std::vector<Ends> after_part = ends_after_a_fault(true);
  for (const Ends& end : after_part) EXPECT_EQ(end.whole, "");
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_NE(after_part[rank].part.find(kGone), std::string::npos) << after_part[rank].part;
  }
}

// Nor does one of what begins and ends ranks leave the others waiting.
TEST(RankFaults, AnAllocationThatFailsInRunEndsAllRanks) {
  const std::vector<ls::Device> devices = first_devices(3);
  for (const bool lasting : {false, true}) {
    SCOPED_TRACE(lasting);
    std::uint64_t n = 0;
    for (bool met = true; met && !::testing::Test::HasFailure(); ++n) {
      std::atomic<int> passed{0};
      bool threw = false;
      fail_allocation(n, lasting);
      try {
        dist::run(devices, [&](const dist::ProcessGroup& group) {
          group.barrier().wait();
          ++passed;
        });
      } catch (const std::exception&) {
        threw = true;
      }
      met = end_allocation_faults();
      EXPECT_TRUE(threw || passed == 3) << n;
    }
    EXPECT_GT(n, 10U);
  }
}

TEST(RankFaults, ARankThatThrowsWithoutMemoryReleasesTheOthers) {
  std::vector<std::string> seen(3);
  const auto body = [&](const dist::ProcessGroup& group) {
    const ls::Tensor tensor = ones(group, {4});
    if (group.rank() == 1) {
      fail_allocation(0, true);
      throw std::bad_alloc();
    }
    seen[static_cast<std::size_t>(group.rank())] = error_of(
        [&] { (group.rank() == 0 ? group.all_reduce(tensor) : group.recv(tensor, 1)).wait(); });
  };
  EXPECT_TRUE(throws<std::bad_alloc>([&] { dist::run(first_devices(3), body); }, "rank 1"));
  ls::testing::end_all_allocation_faults();
  EXPECT_NE(seen[0].find(kGone), std::string::npos) << seen[0];
  // Where the one that waits in recv is told by the one that goes, which has no memory for a text.
  const bool told = seen[2].find(kGone) != std::string::npos ||
                    seen[2] == "rank 1 has gone, and there was no memory to say why";
  EXPECT_TRUE(told) << seen[2];
}

TEST(RankFaults, AnErrorThatIsMadeWithoutMemoryNeedsNone) {
  const dist::RankGone spare(std::string(100, '-'));
  fail_allocation(0, true);
  const dist::detail::RankGoneWithoutMemory error(3, spare);
  const dist::detail::RankGoneWithoutMemory copy = error;
  EXPECT_FALSE(end_allocation_faults());
  EXPECT_EQ(std::string(copy.what()), "rank 3 has gone, and there was no memory to say why");
}

// What is issued before may be for a rank that waits for what then fails.
TEST(RankFaults, ARankThatFailsDoesNotWaitFirstForThoseThatWaitForIt) {
  std::string told;
  dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
    const ls::Tensor tensor = ones(group, {4});
    if (group.rank() == 0) {
      const dist::Work sum = group.all_reduce(tensor);
      fail_allocation(0, true);
      EXPECT_THROW((void)group.send(tensor, 1), std::bad_alloc);
      end_allocation_faults();
      (void)error_of([&] { sum.wait(); });
    } else {
      told = error_of([&] { group.recv(tensor, 0).wait(); });
      (void)error_of([&] { group.all_reduce(tensor).wait(); });
    }
  });
  EXPECT_NE(told.find("rank 0"), std::string::npos) << told;
}

}  // namespace rank_faults_test
