// SPDX-License-Identifier: Apache-2.0
//
// What DistributedDataParallel would reach on more ranks than this machine has, on paper: measured
// are the computing of a step and when its buckets become ready; the network is a ring of the
// alpha-beta model (slow_carrier.hpp), which takes one bucket after the other while backward goes
// on. Every rank has a batch of its own, of one size for any number of ranks: the MLP's has 256
// rows and the CNN's 128, as in compare_models.hpp. Efficiency is the time of a step without other
// ranks over the predicted one.
//
// The second table holds the model to what is measured: 2 and 4 threads whose all-reduces take that
// much longer, asleep. `without` is their step on a network that takes no time, what the prediction
// starts from, since here ranks share cores and memory. Slow networks show more of the model.
//
//   scaling_model            prints Markdown
#include "../../examples/support/arguments.hpp"
#include "bucket_times.hpp"
#include "compare_models.hpp"
#include "rounds.hpp"
#include "slow_carrier.hpp"

#include <array>
#include <cstddef>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace ls = lockstep;
using ls::distributed::ProcessGroup;
using network::Reduction;
using network::Ring;

struct Network {
  const char* name;
  double alpha;  // seconds
  double beta;   // bytes a second

  Ring ring(int ranks) const { return {.alpha = alpha, .beta = beta, .ranks = ranks}; }
};

constexpr Network kTenGigabit{"10 Gbit/s, 30 us", 30e-6, 1.25e9};
constexpr Network kHundredGigabit{"100 Gbit/s, 5 us", 5e-6, 12.5e9};
constexpr Network kGigabit{"1 Gbit/s, 50 us", 50e-6, 0.125e9};

// A step as one rank takes it, in microseconds.
struct Profile {
  double step = 0;
  std::vector<double> ready;       // from the beginning of the step; the last one ends backward
  std::vector<std::size_t> bytes;  // of each bucket

  double on(const Ring& ring) const {
    std::vector<double> takes;
    for (const std::size_t size : bytes) takes.push_back(1e6 * ring.seconds(size));
    return step + network::last_arrival(ready, takes) - ready.back();
  }
};

// All ranks call it; `group` reduces the buckets, or nothing does.
template <class Net>
Profile profile(const ProcessGroup& group, Reduction reduction, const rounds::Options& options) {
  network::Training<Net> training(reduction, group, Net::kBatch);
  const double step = rounds::measure(group, options, [&] { training.step(); }).median;
  return {step, training.times.ready(), training.times.bytes()};
}

template <class Net>
Profile profile_alone(const rounds::Options& options) {
  Profile result;
  ls::distributed::run({"cpu:0"}, [&](const ProcessGroup& group) {
    result = profile<Net>(group, Reduction::never, options);
  });
  return result;
}

// The step on a network, as rank 0 has it.
template <class Net>
Profile profile_on(const Ring& ring, const rounds::Options& options) {
  const auto world = std::make_shared<ls::distributed::detail::ThreadWorld>(ring.ranks);
  std::vector<ls::Device> devices = ls::host_devices();
  devices.resize(static_cast<std::size_t>(ring.ranks));
  Profile result;
  ls::distributed::run(devices, [&](const ProcessGroup& group) {
    const ProcessGroup there = network::on_network(group, world, ring);
    const Profile mine = profile<Net>(there, Reduction::together, options);
    if (group.rank() == 0) result = mine;
  });
  return result;
}

void describe(const char* name, const Profile& alone) {
  std::cout << name << ": a step takes " << alone.step / 1000 << " ms; buckets of";
  for (std::size_t i = 0; i < alone.bytes.size(); ++i) {
    std::cout << (i > 0 ? ", " : " ") << static_cast<double>(alone.bytes[i]) / 1e6 << " MB after "
              << alone.ready[i] / 1000 << " ms";
  }
  std::cout << ".\n";
}

void predict(const rounds::Options& options) {
  const Profile mlp = profile_alone<compare::Mlp>(options);
  const Profile cnn = profile_alone<compare::Cnn>(options);
  std::cout << std::fixed << std::setprecision(2);
  describe("MLP", mlp);
  describe("CNN", cnn);
  std::cout << "\n| ranks |";
  for (const char* name : {"MLP", "CNN"}) {
    for (const Network& network : {kTenGigabit, kHundredGigabit}) {
      std::cout << ' ' << name << ", " << network.name << " |";
    }
  }
  std::cout << "\n|---|---|---|---|---|\n";
  for (int ranks = 2; ranks <= 1024; ranks *= 2) {
    std::cout << "| " << ranks << " |";
    for (const Profile& alone : {mlp, cnn}) {
      for (const Network& network : {kTenGigabit, kHundredGigabit}) {
        std::cout << ' ' << alone.step / alone.on(network.ring(ranks)) << " |";
      }
    }
    std::cout << std::endl;
  }
}

template <class Net>
void check(const char* name, int ranks, const rounds::Options& options) {
  const Profile without = profile_on<Net>({.ranks = ranks}, options);
  for (const Network& network : {kTenGigabit, kGigabit}) {
    const double measured = profile_on<Net>(network.ring(ranks), options).step;
    const double predicted = without.on(network.ring(ranks));
    std::cout << "| " << name << " | " << ranks << " | " << network.name << " | "
              << without.step / 1000 << " | " << predicted / 1000 << " | " << measured / 1000
              << " | " << std::showpos << std::setprecision(0)
              << 100 * (predicted - measured) / measured << " % |" << std::noshowpos
              << std::setprecision(2) << std::endl;
  }
}

void check(const rounds::Options& options) {
  std::cout << "\n| model | ranks | network | without | predicted | measured | off by |"
               "\n|---|---|---|---|---|---|---|"
            << std::endl;
  for (const int ranks : {2, 4}) {
    check<compare::Mlp>("MLP", ranks, options);
    check<compare::Cnn>("CNN", ranks, options);
  }
}

rounds::Options parse(int argc, char** argv) {
  rounds::Options options;
  example::Arguments arguments("Predicts the efficiency of many ranks.");
  arguments.add("--rounds", options.count, "of each step");
  arguments.add("--round-ms", options.milliseconds, "about how long a round takes");
  arguments.parse(argc, argv);
  if (options.count < 1) throw example::UsageError("--rounds needs to be at least 1");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] {
    const rounds::Options options = parse(argc, argv);
    ls::set_host_device_count(4);
    predict(options);
    check(options);
  });
}
