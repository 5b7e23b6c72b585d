// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "cuda/without_nccl.hpp"
#include "support/allocation_faults.hpp"
#include "support/environment_variable.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// A rank whose calls of CUDA or NCCL fail, at every place of every operation in turn, once or from
// there on. The operation ends on all ranks: with what is right, or with an error that names the
// rank. So does the next one, which meets no earlier one.
namespace lockstep {
namespace cuda_rank_faults_test {

using distributed::ProcessGroup;
using testing::EnvironmentVariable;
using Devices = std::vector<Device>;

constexpr int kRanks = 2;
const std::vector<int> kBoth = {0, 1};

Tensor filled(const ProcessGroup& group, const Shape& shape, double value,
              Dtype dtype = Dtype::f32) {
  return detail::cast(full(shape, value), dtype).to(group.device());
}

bool all_are(const Tensor& tensor, double value) {
  const Tensor host = detail::cast(tensor.to("cpu"), Dtype::f64);
  const auto* const first = host.const_data_ptr<double>();
  return std::all_of(first, first + host.numel(), [value](double v) { return v == value; });
}

// An operation on tensors that are made before, and whether it has done what it should.
struct Operation {
  std::function<void()> run;
  std::function<bool()> is_right;
};
struct Case {
  const char* name;
  std::function<Operation(const ProcessGroup&)> prepare;
};

Operation sum_of(const ProcessGroup& group, const Tensor& tensor) {
  return {[group, tensor] { group.all_reduce(tensor).wait(); },
          [tensor] { return all_are(tensor, 3); }};
}

Operation message_of(const ProcessGroup& group, const Tensor& tensor) {
  return {[group, tensor] {
            (group.rank() == 1 ? group.send(tensor, 0) : group.recv(tensor, 1)).wait();
          },
          [tensor] { return all_are(tensor, 2); }};
}
bool is_message(const Case& each) { return std::string(each.name).rfind("message", 0) == 0; }

// Rank r brings r + 1.
std::vector<Case> cases() {
  using Group = ProcessGroup;
  const auto own = [](const Group& group) { return group.rank() + 1.0; };
  return {
      {"all_reduce",
       [=](const Group& group) { return sum_of(group, filled(group, {3000}, own(group))); }},
      {"all_reduce of columns",
       [=](const Group& group) {
         return sum_of(group, filled(group, {40, 60}, own(group)).t().narrow(0, 1, 50));
       }},
      {"all_reduce of halves",
       [=](const Group& group) {
         return sum_of(group, filled(group, {9}, own(group), Dtype::f16));
       }},
      {"broadcast",
       [=](const Group& group) -> Operation {
         const Tensor tensor = filled(group, {9}, own(group));
         return {[=] { group.broadcast(tensor, 1).wait(); }, [=] { return all_are(tensor, 2); }};
       }},
      {"all_gather",
       [=](const Group& group) -> Operation {
         const Tensor input = filled(group, {9}, own(group));
         const std::vector<Tensor> outputs{filled(group, {9}, 0), filled(group, {9}, 0)};
         return {[=] { group.all_gather(outputs, input).wait(); },
                 [=] { return all_are(outputs[0], 1) && all_are(outputs[1], 2); }};
       }},
      {"reduce_scatter",
       [=](const Group& group) -> Operation {
         const Tensor output = filled(group, {9}, 0);
         const std::vector<Tensor> inputs(2, filled(group, {9}, own(group)));
         return {[=] { group.reduce_scatter(output, inputs).wait(); },
                 [=] { return all_are(output, 3); }};
       }},
      {"gather",
       [=](const Group& group) -> Operation {
         const Tensor input = filled(group, {9}, own(group));
         std::vector<Tensor> outputs;
         if (group.rank() == 1) outputs = {filled(group, {9}, 0), filled(group, {9}, 0)};
         return {
             [=] { group.gather(input, outputs, 1).wait(); },
             [=] { return outputs.empty() || (all_are(outputs[0], 1) && all_are(outputs[1], 2)); }};
       }},
      {"barrier",
       [](const Group& group) -> Operation {
         return {[=] { group.barrier().wait(); }, [] { return true; }};
       }},
      {"message",
       [=](const Group& group) { return message_of(group, filled(group, {9}, own(group))); }},
      {"message of columns",
       [=](const Group& group) {
         return message_of(group, filled(group, {40, 60}, own(group)).t().narrow(0, 1, 50));
       }},
      {"new_group",
       [=](const Group& group) -> Operation {
         const Tensor tensor = filled(group, {9}, own(group));
         return {[=] { group.new_group(kBoth).all_reduce(tensor).wait(); },
                 [=] { return all_are(tensor, 3); }};
       }},
  };
}

// Whose calls fail: those of the thread that issues, or of the one that communicates.
enum class Where { issuing, communicating };

enum class Fault {
  call,         // of CUDA or NCCL
  gpu,          // breaks at a call, for good
  allocation,   // of host memory,
  allocations,  // and all later ones
};
const char* const kFaults[] = {"call", "call, at which the GPU breaks,", "allocation",
                               "allocation and all later ones,"};

struct Place {
  Where where;
  Fault fault;
  std::uint64_t number;
};

void begin_faults(const ProcessGroup& group, const Place& place) {
  const auto begin = [place, gpu = group.device().index]() noexcept {
    switch (place.fault) {
      case Fault::call:  // which NCCL does not take for the end of another rank
        return cudasim::fail_call(place.number, cudaErrorLaunchOutOfResources);
      case Fault::gpu:
        return cudasim::fail_call(place.number, cudaErrorIllegalAddress, gpu);
      case Fault::allocation:
        return testing::fail_allocation(place.number);
      case Fault::allocations:
        return testing::fail_allocation(place.number, true);
    }
  };
  if (place.where == Where::issuing) return begin();
  group.impl()->thread()->issue(detail::Task(begin));
}
// The function that has failed, or nothing.
std::string end_faults(const ProcessGroup& group, Where where) {
  std::string failed;
  const auto end = [&failed]() noexcept {
    failed = testing::end_allocation_faults() ? "new" : cudasim::end_failing_calls();
  };
  if (where == Where::issuing) {
    end();
  } else {
    group.impl()->thread()->issue(detail::Task(end));
    group.impl()->thread()->drain();
  }
  return failed;
}

// What it has thrown, if anything.
std::string error_of(const std::function<void()>& operation) {
  try {
    operation();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

bool names(const std::string& text, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  return text.find("failed on " + name + ", on cuda:") != std::string::npos ||
         text.find(name + " on device cuda:") != std::string::npos ||
         text.find(name + " has gone") != std::string::npos ||
         text.find(name + " has failed") != std::string::npos ||
         text.find("work of cuda:" + std::to_string(rank) + ", which has failed") !=
             std::string::npos ||
         text.find(name + " has ended") != std::string::npos;
}

// What an operation and the next one have come to on a rank: an error, or nothing.
struct Ends {
  std::string first;
  std::string next;
};

// How ranks are connected: `run` calls body(group) for each.
struct WithRanks {
  std::function<void(const std::function<void(const ProcessGroup&)>& body)> run;
  bool processes = false;
};

// The call fails on one rank in the operation, and both ranks go on. The function that failed.
std::string survive(const WithRanks& with_ranks, int rank, const Case& each, const Place& place) {
  std::string failed;
  std::vector<Ends> ends(kRanks);
  std::barrier<> begin(kRanks);
  with_ranks.run([&](const ProcessGroup& group) {
    Ends& mine = ends[static_cast<std::size_t>(group.rank())];
    // What nobody knows to be free is not freed.
    const testing::MayLeak memory;
    group.impl()->thread()->issue(
        detail::Task([]() noexcept { static thread_local const testing::MayLeak its_memory; }));
    const Operation first = each.prepare(group);
    const Operation next = sum_of(group, filled(group, {9}, group.rank() + 1));
    const bool fails = group.rank() == rank;
    // What it gives may be lost, which whoever reads it is told.
    const auto expect_right = [&](std::string& error, const Operation& operation) {
      if (!error.empty() || (fails && place.fault == Fault::gpu)) return;
      bool right = true;
      error = error_of([&] { right = operation.is_right(); });
      EXPECT_TRUE(right) << "rank " << group.rank();
    };
    begin.arrive_and_wait();
    if (fails) begin_faults(group, place);
    mine.first = error_of(first.run);
    if (fails && place.where == Where::issuing) failed = end_faults(group, place.where);
    expect_right(mine.first, first);
    if (fails && place.where == Where::communicating) failed = end_faults(group, place.where);
    mine.next = error_of(next.run);
    expect_right(mine.next, next);
  });
  cudasim::mend();
  const Ends& mine = ends[static_cast<std::size_t>(rank)];
  const Ends& other = ends[static_cast<std::size_t>(1 - rank)];
  // The rank that comes second to a message ends it for both, in its thread: what is missing there
  // for the other's end, a call on its GPU or memory of the process, is the other's error.
  const bool its_own = is_message(each) && (other.first == "std::bad_alloc" ||
                                            other.first.find("(cudaError") != std::string::npos);
  EXPECT_TRUE(other.first.empty() || its_own || names(other.first, rank)) << other.first;
  // A process has left the group with its error, unless a message has been taken.
  if (with_ranks.processes && place.where == Where::communicating && !mine.first.empty() &&
      !is_message(each)) {
    EXPECT_FALSE(mine.next.empty()) << mine.first;
  }
  EXPECT_EQ(mine.next.empty(), other.next.empty()) << mine.next << '\n' << other.next;
  EXPECT_TRUE(other.next.empty() || names(other.next, rank)) << other.next;
  return failed;
}

// Every place of every operation, with each of the faults. Prints how many there were of each
// function.
void walk(const WithRanks& with_ranks, int rank, const std::vector<Fault>& faults) {
  std::map<std::string, int> walked;
  for (const Case& each : cases()) {
    for (const Where where : {Where::issuing, Where::communicating}) {
      for (const Fault fault : faults) {
        for (std::uint64_t n = testing::kFirstShare;; n += testing::kShares) {
          const char* const thread = where == Where::issuing ? "issues" : "communicates";
          SCOPED_TRACE(std::string(each.name) + ": " + kFaults[static_cast<int>(fault)] +
                       " number " + std::to_string(n) + " of the thread that " + thread);
          const std::string failed = survive(with_ranks, rank, each, {where, fault, n});
          for (const std::string& error : cudasim::take_errors()) ADD_FAILURE() << error;
          if (failed.empty()) break;
          ++walked[failed];
          if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << failed;
            return;
          }
        }
      }
    }
  }
  for (const auto& [function, places] : walked) std::cout << function << ' ' << places << ' ';
  std::cout << '\n';
}

TEST(RankFaultsOnGpus, OfThreadsThatCopyAndAdd) {
  const testing::WithoutNccl copies;
  const WithRanks with_ranks{[](const auto& body) {
    distributed::run({"cuda:0", "cuda:1"}, body);
  }};
  testing::under(cudasim::Policy::eager, 1, [&] {
    walk(with_ranks, 1, {Fault::call, Fault::gpu});
  });
  testing::under(cudasim::Policy::lazy, 1, [&] {
    walk(with_ranks, 0, {Fault::call});
    walk(with_ranks, 1, {Fault::call, Fault::gpu, Fault::allocation, Fault::allocations});
  });
}

// NCCL is not used again on GPUs where it has failed: others each time, in a process of its own.
class RankFaultsOnGpusDeathTest : public ::testing::Test {
 protected:
  RankFaultsOnGpusDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void walk_over_nccl() {
  int pair = 0;
  const auto nth = [](int n) {
    const int first = n / 7;
    const int second = n % 7;
    return Devices{Device(DeviceType::cuda, first),
                   Device(DeviceType::cuda, second < first ? second : second + 1)};
  };
  const auto run = [&](const auto& body) {
    bool usable = true;
    while (true) {
      distributed::run(nth(pair), [&](const ProcessGroup& group) {
        // Which connects them, or fails.
        const std::string error = error_of(sum_of(group, filled(group, {1}, 1)).run);
        if (group.rank() == 0) usable = error.empty();
        if (error.empty()) body(group);
      });
      for (const Device& device : nth(pair)) nccl::forget_lost_results(device);
      if (usable) return;
      ++pair;
    }
  };
  const WithRanks with_ranks{run};
  for (const int rank : {0, 1}) {
    testing::under(cudasim::Policy::lazy, 1, [&] { walk(with_ranks, rank, {Fault::call}); });
  }
  std::cout << pair << " pairs of GPUs\n";
  std::cout.flush();
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(RankFaultsOnGpusDeathTest, OfThreadsThatUseNccl) {
  EXPECT_EXIT(walk_over_nccl(), ::testing::ExitedWithCode(0), "");
}

// Ranks as processes have them: each makes its group by itself.
void run_processes(const std::function<void(const ProcessGroup&)>& body) {
  const EnvironmentVariable often("LOCKSTEP_HEARTBEAT_INTERVAL", "0.01");
  const Devices devices{"cuda:3", "cuda:4"};
  distributed::HashStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Device device = devices[static_cast<std::size_t>(rank)];
    threads.emplace_back(
        [&, rank, device] { body(nccl::process_group(rank, kRanks, device, store)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Device& device : devices) nccl::forget_lost_results(device);
}

TEST(RankFaultsOnGpus, OfProcessesThatUseNccl) {
  const WithRanks with_ranks{run_processes, true};
  testing::under(cudasim::Policy::lazy, 1, [&] {
    walk(with_ranks, 1, {Fault::call, Fault::allocation, Fault::allocations});
  });
}

// What a rank's training has come to: the losses, and the exception that has ended it, if any.
struct Trained {
  std::vector<float> losses;
  std::string error;
};

void train(const ProcessGroup& group, Trained& trained, const std::function<void()>& second_step) {
  nn::Linear net{6, 3};
  for (const Parameter& parameter : parameters(net)) parameter.set_data(full(parameter.sizes(), 1));
  DistributedDataParallel model{net, group};
  optim::SGD sgd{model.parameters(), {.lr = 0.01, .momentum = 0.9}};
  for (int step = 0; step < 3; ++step) {
    if (step == 1) second_step();
    sgd.zero_grad();
    const Tensor y = model(filled(group, {4, 6}, step + group.rank()));
    const Tensor loss = (y * y).mean();
    loss.backward();
    sgd.step();
    trained.losses.push_back(loss.item<float>());
  }
}

TEST(RankFaultsOnGpus, StepsOfDistributedDataParallelOverNccl) {
  // `begin` for the rank that fails, and `end` whatever comes of it.
  const auto train_all = [](const std::function<void(const ProcessGroup&)>& begin,
                            const std::function<void(const ProcessGroup&)>& end) {
    std::vector<Trained> all(kRanks);
    run_processes([&](const ProcessGroup& group) {
      const testing::MayLeak memory;
      group.impl()->thread()->issue(
          detail::Task([]() noexcept { static thread_local const testing::MayLeak its_memory; }));
      Trained& mine = all[static_cast<std::size_t>(group.rank())];
      const bool fails = group.rank() == 1;
      mine.error = error_of([&] {
        train(group, mine, [&] {
          if (fails) begin(group);
        });
      });
      if (fails) end(group);
    });
    return all;
  };
  const auto nothing = [](const ProcessGroup&) {};
  testing::under(cudasim::Policy::lazy, 1, [&] {
    const std::vector<Trained> expected = train_all(nothing, nothing);
    for (const Where where : {Where::issuing, Where::communicating}) {
      for (const Fault fault : {Fault::call, Fault::allocation}) {
        int ended = 0;
        for (std::uint64_t n = testing::kFirstShare; !::testing::Test::HasFailure();
             n += testing::kShares) {
          SCOPED_TRACE(std::string(kFaults[static_cast<int>(fault)]) + " number " +
                       std::to_string(n) +
                       (where == Where::issuing ? " of the caller" : " of the other thread"));
          std::string failed;
          const std::vector<Trained> all = train_all(
              [&](const ProcessGroup& group) {
                begin_faults(group, {where, fault, n});
              },
              [&](const ProcessGroup& group) { failed = end_faults(group, where); });
          for (std::size_t rank = 0; rank < all.size(); ++rank) {
            std::vector<float> losses = expected[rank].losses;
            if (!all[rank].error.empty()) losses.resize(all[rank].losses.size());
            EXPECT_EQ(all[rank].losses, losses) << failed << ", rank " << rank;
          }
          EXPECT_TRUE(all[0].error.empty() || names(all[0].error, 1)) << all[0].error;
          // A rank whose last operation fails in its other thread may have ended by then.
          const bool by_then = where == Where::communicating && !failed.empty();
          EXPECT_TRUE(all[0].error.empty() || !all[1].error.empty() || by_then) << all[0].error;
          for (const std::string& error : cudasim::take_errors()) ADD_FAILURE() << error;
          if (failed.empty()) break;
          if (!all[1].error.empty()) ++ended;
        }
        EXPECT_GT(ended, 0);
        std::cout << kFaults[static_cast<int>(fault)] << ": " << ended << " have ended the ranks\n";
      }
    }
  });
}

}  // namespace cuda_rank_faults_test
}  // namespace lockstep
