// SPDX-License-Identifier: Apache-2.0
//
// A training step (zero_grad, forward, loss, backward, optimiser) of DistributedDataParallel on
// each of the three models, a batch divided among the ranks, one maths thread each:
//
//   mpirun -n 2 ddp_step_openmpi        mpirun -n 2 ddp_step_mpich
//   ddp_step --threads 2
//
// Rank 0 prints a line for each model: NAME MEDIAN LEAST GREATEST ROUNDS, of the rounds' medians in
// microseconds, a round being the slowest rank's. --step alone has every rank take the same step
// with its part of the batch and without the others: what a perfect DistributedDataParallel would
// take.
#include "../../examples/support/arguments.hpp"
#include "compare_models.hpp"
#include "rounds.hpp"

#include <lockstep/module/parameters.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>

#include <iostream>
#include <string>

namespace {

namespace ls = lockstep;
using ls::distributed::ProcessGroup;

struct Settings {
  int threads = 0;
  std::string models = "tiny,mlp,cnn";
  int rounds = 9;
  double round_ms = 200;
  std::string step = "ddp";
};

template <class Net, class Model>
void report(const char* name, Model& model, const ProcessGroup& group, const Settings& settings) {
  const std::int64_t rows = Net::kBatch / group.size();
  const ls::Tensor x = Net::input(rows).to(group.device());
  const ls::Tensor y = Net::target(rows).to(group.device());
  ls::optim::SGD sgd{ls::parameters(model), {.lr = 1e-3, .momentum = Net::kMomentum}};
  const rounds::Options options{.count = settings.rounds, .milliseconds = settings.round_ms};
  const rounds::Figure figure = rounds::measure(group, options, [&] {
    sgd.zero_grad();
    Net::loss(model.forward(x), y).backward();
    sgd.step();
  });
  if (group.rank() != 0) return;
  std::cout << name << ' ' << figure.median << ' ' << figure.least << ' ' << figure.greatest << ' '
            << settings.rounds << std::endl;
}

template <class Net>
void measure(const char* name, const ProcessGroup& group, const Settings& settings) {
  if (("," + settings.models + ",").find(std::string(",") + name + ",") == std::string::npos) {
    return;
  }
  Net net;
  if (settings.step == "alone") {
    ls::to(net, group.device());
    return report<Net>(name, net, group, settings);
  }
  ls::DistributedDataParallel model{std::move(net), group};
  report<Net>(name, model, group, settings);
}

void measure(const Settings& settings) {
  rounds::on_ranks(settings.threads, [&](const ProcessGroup& group) {
    measure<compare::Tiny>("tiny", group, settings);
    measure<compare::Mlp>("mlp", group, settings);
    measure<compare::Cnn>("cnn", group, settings);
  });
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Times training steps of DistributedDataParallel.");
  arguments.add("--threads", settings.threads, "ranks that are threads; 0: those of mpirun");
  arguments.add("--models", settings.models, "which of them");
  arguments.add("--rounds", settings.rounds, "of each model");
  arguments.add("--round-ms", settings.round_ms, "about how long a round takes");
  arguments.add("--step", settings.step, "ddp or alone");
  arguments.parse(argc, argv);
  if (settings.step != "ddp" && settings.step != "alone") {
    throw example::UsageError("--step needs ddp or alone, not \"" + settings.step + "\"");
  }
  if (settings.rounds < 1) throw example::UsageError("--rounds needs to be at least 1");
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { measure(parse(argc, argv)); });
}
