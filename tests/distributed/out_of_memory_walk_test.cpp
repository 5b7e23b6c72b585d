// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "support/count_operator_new.hpp"
#include "support/devices.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace out_of_memory_walk_test {

using distributed::ProcessGroup;
using testing::fails_at;
using testing::first_devices;
using testing::OutOfMemory;
using testing::Place;
using testing::tells_of_memory;
using testing::text_of;
using testing::walk;

constexpr int kRanks = 3;

Tensor filled(const ProcessGroup& group, std::int64_t count, float value) {
  return full({count}, value, {.device = group.device()});
}
bool all_are(const Tensor& tensor, float value) {
  const std::vector<float> values = tensor.to_vector<float>();
  return std::all_of(values.begin(), values.end(), [value](float v) { return v == value; });
}

// What one rank brings to a collective: everywhere `value` times its number, counted from 1; and
// room for what comes.
struct Operands {
  Operands(const ProcessGroup& group, std::int64_t count, float value_of_all)
      : value(value_of_all),
        own(value * static_cast<float>(group.rank() + 1)),
        one(filled(group, count, own)) {
    for (int i = 0; i < kRanks; ++i) {
      inputs.push_back(filled(group, count, own));
      outputs.push_back(filled(group, count, 0));
    }
  }

  bool outputs_are_of_each_rank() const {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!all_are(outputs[i], value * static_cast<float>(i + 1))) return false;
    }
    return true;
  }

  float value;
  float own;
  Tensor one;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<Tensor> none;
  std::vector<int> others{0, 2};  // but the root
};

struct Collective {
  std::string name;
  void (*run)(const ProcessGroup& group, const Operands& operands);
  bool (*is_right)(const ProcessGroup& group, const Operands& operands);  // afterwards
};

// Root is rank 1; the values of all ranks add up to 1 + 2 + 3.
const std::vector<Collective>& collectives() {
  static const std::vector<Collective> all = {
      {"all_reduce",
       [](const ProcessGroup& group, const Operands& my) { group.all_reduce(my.one).wait(); },
       [](const ProcessGroup&, const Operands& my) { return all_are(my.one, 6 * my.value); }},
      {"all_reduce, blocking",
       [](const ProcessGroup& group, const Operands& my) {
         group.blocking().all_reduce(my.one).wait();
       },
       [](const ProcessGroup&, const Operands& my) { return all_are(my.one, 6 * my.value); }},
      {"broadcast",
       [](const ProcessGroup& group, const Operands& my) { group.broadcast(my.one, 1).wait(); },
       [](const ProcessGroup&, const Operands& my) { return all_are(my.one, 2 * my.value); }},
      {"reduce",
       [](const ProcessGroup& group, const Operands& my) { group.reduce(my.one, 1).wait(); },
       [](const ProcessGroup& group, const Operands& my) {
         return all_are(my.one, group.rank() == 1 ? 6 * my.value : my.own);
       }},
      {"all_gather",
       [](const ProcessGroup& group, const Operands& my) {
         group.all_gather(my.outputs, my.one).wait();
       },
       [](const ProcessGroup&, const Operands& my) { return my.outputs_are_of_each_rank(); }},
      {"reduce_scatter",
       [](const ProcessGroup& group, const Operands& my) {
         group.reduce_scatter(my.one, my.inputs).wait();
       },
       [](const ProcessGroup&, const Operands& my) { return all_are(my.one, 6 * my.value); }},
      {"scatter",
       [](const ProcessGroup& group, const Operands& my) {
         group.scatter(my.one, group.rank() == 1 ? my.inputs : my.none, 1).wait();
       },
       [](const ProcessGroup&, const Operands& my) { return all_are(my.one, 2 * my.value); }},
      {"gather",
       [](const ProcessGroup& group, const Operands& my) {
         group.gather(my.one, group.rank() == 1 ? my.outputs : my.none, 1).wait();
       },
       [](const ProcessGroup& group, const Operands& my) {
         return group.rank() != 1 || my.outputs_are_of_each_rank();
       }},
      {"barrier", [](const ProcessGroup& group, const Operands&) { group.barrier().wait(); },
       [](const ProcessGroup&, const Operands&) { return true; }},
      {"send and recv",
       [](const ProcessGroup& group, const Operands& my) {
         if (group.rank() == 0) group.send(my.one, 1).wait();
         if (group.rank() == 1) group.recv(my.one, 0).wait();
       },
       [](const ProcessGroup& group, const Operands& my) {
         return all_are(my.one, group.rank() == 1 ? my.value : my.own);
       }},
      {"new_group",
       [](const ProcessGroup& group, const Operands& my) {
         const ProcessGroup pair = group.new_group(my.others);
         if (pair) pair.all_reduce(my.one).wait();
       },
       [](const ProcessGroup& group, const Operands& my) {
         return all_are(my.one, (group.rank() == 1 ? 2 : 4) * my.value);
       }},
  };
  return all;
}

constexpr std::int64_t kCounts[] = {3, 3000};  // what is small, and what is not

// Memory is short from where all ranks have their operands until `run` has come back: whoever fails
// lets the exception go, and with it the group.
TEST(OutOfMemoryWalk, CollectivesOfRanksThatGoWithTheirException) {
  for (const std::int64_t count : kCounts) {
    for (const Collective& collective : collectives()) {
      const auto visit = [&](Place place) {
        std::optional<OutOfMemory> scarce;
        std::barrier begin(kRanks, [&]() noexcept { scarce.emplace(place.number, place.lasting); });
        std::atomic<bool> right{true};
        std::exception_ptr error;
        try {
          distributed::run(first_devices(kRanks), [&](const ProcessGroup& group) {
            const Operands operands(group, count, 10);
            begin.arrive_and_wait();
            collective.run(group, operands);
            if (!collective.is_right(group, operands)) right = false;
          });
        } catch (...) {
          error = std::current_exception();
        }
        scarce.reset();
        EXPECT_TRUE(right);
        if (error) {
          EXPECT_TRUE(OutOfMemory::has_struck() && tells_of_memory(error)) << text_of(error);
        }
      };
      if (!walk(collective.name + " of " + std::to_string(count), visit)) return;
    }
  }
}

// Whoever fails goes on: its next collective must not meet an earlier one of the other ranks. The
// first that fails has memory again.
TEST(OutOfMemoryWalk, CollectivesOfRanksThatGoOn) {
  for (const std::int64_t count : kCounts) {
    for (const Collective& collective : collectives()) {
      const auto visit = [&](Place place) {
        std::mutex mutex;
        std::optional<OutOfMemory> scarce;
        const auto no_longer_scarce = [&] {
          const std::lock_guard lock(mutex);
          scarce.reset();
        };
        std::barrier begin(kRanks, [&]() noexcept { scarce.emplace(place.number, place.lasting); });
        std::atomic<bool> right{true};
        std::exception_ptr end;
        try {
          distributed::run(first_devices(kRanks), [&](const ProcessGroup& group) {
            const Operands first(group, count, 10);
            const Operands second(group, count, 100);
            begin.arrive_and_wait();
            try {
              collective.run(group, first);
              if (!collective.is_right(group, first)) right = false;
            } catch (const std::exception& error) {
              const bool struck = OutOfMemory::has_struck();
              no_longer_scarce();
              EXPECT_TRUE(struck) << error.what();
            }
            collective.run(group, second);
            if (!collective.is_right(group, second)) right = false;
          });
        } catch (...) {
          end = std::current_exception();  // it may say that it cannot go on
        }
        no_longer_scarce();
        EXPECT_TRUE(right);
        if (end) {
          EXPECT_TRUE(OutOfMemory::has_struck()) << text_of(end);
        }
      };
      if (!walk(collective.name + " of " + std::to_string(count) + ", and the next", visit)) return;
    }
  }
}

TEST(OutOfMemoryWalk, RunFromBeginningToEnd) {
  walk("run", [](Place place) {
    std::atomic<int> right{0};
    const auto run = [&] {
      right = 0;
      distributed::run(first_devices(kRanks), [&](const ProcessGroup& group) {
        const Operands operands(group, 3, 1);
        group.all_reduce(operands.one).wait();
        if (all_are(operands.one, 6)) ++right;
      });
    };
    if (fails_at(place, run)) run();
    EXPECT_EQ(right, kRanks);
  });
}

}  // namespace out_of_memory_walk_test
}  // namespace lockstep
