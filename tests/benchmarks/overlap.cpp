// SPDX-License-Identifier: Apache-2.0
//
// How much of the gradients' reduction DistributedDataParallel hides behind backward: an MLP
// (784, five times 1024, 10) with 20 MiB of gradients in buckets of 4 MiB and more.
//
//   overlap [--threads 2]                  threads, on networks of a known delay
//   mpirun -n 2 overlap_openmpi            processes, as they are (and overlap_mpich)
//
// Four training steps take turns, round by round; each differs from the others only in what becomes
// of a bucket that is full:
//   compute    nothing
//   after      it is reduced when backward has ended
//   together   it is reduced at once, which is what DistributedDataParallel does
// and the fourth is no more than the buckets' reductions one after the other: `communication`.
//
// `ready` is the part of the communication that could be over when backward ends: what a link would
// have carried by then that takes the buckets as they become ready, each for as long as it took in
// `communication`. `hidden` is after - together, and is to be at least 80 % of `ready`. A network
// has the delay of a ring of --ring ranks (slow_carrier.hpp); `none` is the threads' own memory.
// All times are medians in milliseconds, of the slowest rank.
#include "../../examples/support/arguments.hpp"
#include "bucket_times.hpp"
#include "compare_models.hpp"
#include "rounds.hpp"
#include "slow_carrier.hpp"

#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/loss.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace ls = lockstep;
using ls::distributed::ProcessGroup;
using network::Reduction;

struct Settings {
  int threads = 2;
  int ring = 8;
  int rows = 128;
  int rounds = 5;
  double round_ms = 400;
};

struct Network {
  const char* name;
  double alpha;  // seconds
  double beta;   // bytes a second
};

constexpr std::array kNetworks{Network{"none", 0, 0}, Network{"100 Gbit/s, 5 us", 5e-6, 12.5e9},
                               Network{"25 Gbit/s, 20 us", 20e-6, 3.125e9},
                               Network{"10 Gbit/s, 30 us", 30e-6, 1.25e9},
                               Network{"5 Gbit/s, 30 us", 30e-6, 0.625e9}};

struct Net {
  static constexpr double kMomentum = 0.9;
  ls::nn::Linear fc1{784, 1024}, fc2{1024, 1024}, fc3{1024, 1024}, fc4{1024, 1024}, fc5{1024, 1024};
  ls::nn::Linear fc6{1024, 10};
  ls::Tensor forward(const ls::Tensor& x) {
    const ls::Tensor h = ls::relu(fc3(ls::relu(fc2(ls::relu(fc1(x))))));
    return fc6(ls::relu(fc5(ls::relu(fc4(h)))));
  }
  static ls::Tensor input(std::int64_t rows) { return ls::randn({rows, 784}); }
  static ls::Tensor target(std::int64_t rows) { return compare::labels(rows); }
  static ls::Tensor loss(const ls::Tensor& y, const ls::Tensor& t) {
    return ls::cross_entropy(y, t);
  }
};

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

// On the group's network as it is.
void report(const std::string& name, const ProcessGroup& group, const Settings& settings) {
  const auto training = [&](Reduction reduction) {
    return std::make_unique<network::Training<Net>>(
        reduction, group, settings.rows, ls::DistributedDataParallelOptions{.bucket_cap_mb = 4});
  };
  const auto compute = training(Reduction::never);
  const auto after = training(Reduction::after);
  const auto together = training(Reduction::together);
  const std::vector<ls::Tensor> buffers = compute->times.buffers();
  std::vector<std::vector<double>> takes(buffers.size());
  const auto communicate = [&] {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const auto start = rounds::Clock::now();
      (void)group.blocking().all_reduce(buffers[i], ls::distributed::ReduceOp::avg);
      takes[i].push_back(rounds::microseconds(rounds::Clock::now() - start));
    }
  };

  const std::vector<std::function<void()>> steps{[&] { compute->step(); }, [&] { after->step(); },
                                                 [&] { together->step(); }, communicate};
  std::vector<int> counts;
  const rounds::Options options{.count = settings.rounds, .milliseconds = settings.round_ms};
  for (const auto& step : steps) {
    counts.push_back(rounds::steps_of_round(group, options, step));
  }
  compute->times.forget();
  for (auto& times : takes) times.clear();
  std::vector<std::vector<double>> medians(steps.size());
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      medians[i].push_back(rounds::time_round(group, counts[i], steps[i]));
    }
  }

  std::vector<double> each;
  for (auto& times : takes) each.push_back(rounds::median(times));
  const std::vector<double> ready_at = compute->times.ready();
  const double left = network::last_arrival(ready_at, each) - ready_at.back();
  const double ready = sum(each) - left;
  const auto time = [&](std::size_t i) { return rounds::median(medians[i]) / 1000; };
  const double hidden = time(1) - time(2);
  if (group.rank() != 0) return;
  std::cout << std::fixed << std::setprecision(1) << "| " << name << " | " << time(0) << " | "
            << time(3) << " | " << ready / 1000 << " | " << time(1) << " | " << time(2) << " | "
            << hidden << " | ";
  // Of next to nothing there is no part.
  if (ready / 1000 < 0.05 * time(0)) {
    std::cout << "- |" << std::endl;
  } else {
    std::cout << std::setprecision(0) << 100 * hidden / (ready / 1000) << " % |" << std::endl;
  }
}

void print_head(const ProcessGroup& group) {
  if (group.rank() != 0) return;
  std::cout
      << "| network | compute | communication | ready | after | together | hidden | of ready |"
         "\n|---|---|---|---|---|---|---|---|"
      << std::endl;
}

void measure(const Settings& settings) {
  std::vector<std::shared_ptr<ls::distributed::detail::ThreadWorld>> worlds;
  for (std::size_t i = 0; i < kNetworks.size() && settings.threads > 0; ++i) {
    worlds.push_back(std::make_shared<ls::distributed::detail::ThreadWorld>(settings.threads));
  }
  rounds::on_ranks(settings.threads, [&](const ProcessGroup& group) {
    print_head(group);
    if (settings.threads == 0) return report("mpirun", group, settings);
    for (std::size_t i = 0; i < kNetworks.size(); ++i) {
      const auto [name, alpha, beta] = kNetworks[i];
      report(name,
             network::on_network(group, worlds[i],
                                 {.alpha = alpha, .beta = beta, .ranks = settings.ring}),
             settings);
    }
  });
}

Settings parse(int argc, char** argv) {
  Settings settings;
  if (!ls::distributed::launch_environment().launcher.empty()) settings.threads = 0;
  example::Arguments arguments("Measures what is hidden of the gradients' reduction.");
  arguments.add("--threads", settings.threads, "ranks that are threads; 0: those of mpirun");
  arguments.add("--ring", settings.ring, "ranks of the network that is feigned");
  arguments.add("--rows", settings.rows, "of each rank's batch");
  arguments.add("--rounds", settings.rounds, "of each step");
  arguments.add("--round-ms", settings.round_ms, "about how long a round takes");
  arguments.parse(argc, argv);
  if (settings.rounds < 1) throw example::UsageError("--rounds needs to be at least 1");
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { measure(parse(argc, argv)); });
}
