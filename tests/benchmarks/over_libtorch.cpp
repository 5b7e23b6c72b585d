// SPDX-License-Identifier: Apache-2.0
//
// Training steps of one LibTorch program, served to `compare_over_libtorch`: the whole batch in the
// plain module (mlp/full), half of it (mlp/half), LibTorch's replicate and parallel_apply on two
// halves of it (mlp/parallel), and lockstep's DataParallel over the same module on two host devices
// (mlp/DataParallel); and so for the models tiny and cnn.
//
// `over_libtorch THREADS`: so many intra-op threads, for the steps of all kinds.
// `over_libtorch THREADS ranks`: lockstep's DistributedDataParallel over such modules on two ranks,
// each with half of the batch (mlp/DDP). `mpirun -n 2 over_libtorch_openmpi THREADS processes` (or
// mpich): the same between processes.
#include <lockstep/torch.hpp>

#include "peers/libtorch_models.hpp"
#include "served_ranks.hpp"
#include "served_steps.hpp"

#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace compare {
namespace {

template <class Net>
Step data_parallel() {
  struct Both {
    Training<Net> training;
    lockstep::libtorch::DataParallel<Net> model{training.net, {"cpu:0", "cpu:1"}};
  };
  return {
      [both = std::make_shared<Both>()] { both->training.step(both->model(both->training.x)); }};
}

// The same with half of the rows: what one of two programs does that know nothing of each other.
template <class Net>
std::shared_ptr<Training<Net>> half_training() {
  auto training = std::make_shared<Training<Net>>();
  const auto half_of = [](const torch::Tensor& rows) { return rows.chunk(2)[0].clone(); };
  training->x = half_of(training->x);
  training->t = half_of(training->t);
  return training;
}

template <class Net>
Step half() {
  return {
      [training = half_training<Net>()] { training->step(training->net->forward(training->x)); }};
}

template <class Net>
void add_rank_step(Steps& steps, const std::string& model,
                   const lockstep::distributed::ProcessGroup& group) {
  steps.add(model + "/DDP", [group]() -> Step {
    auto training = half_training<Net>();
    auto ranks =
        std::make_shared<lockstep::libtorch::DistributedDataParallel<Net>>(training->net, group);
    return {[training, ranks] { training->step((*ranks)(training->x)); }};
  });
}

template <class Net>
void add_steps(Steps& steps, const std::string& model) {
  steps.add(model + "/full", whole<Net>);
  steps.add(model + "/half", half<Net>);
  steps.add(model + "/parallel", parallel<Net>);
  steps.add(model + "/DataParallel", data_parallel<Net>);
}

}  // namespace
}  // namespace compare

int main(int argc, char** argv) {
  using namespace compare;
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const std::string way = argc > 2 ? argv[2] : "";
  const auto add_rank_steps = [](Steps& steps, const auto& group) {
    add_rank_step<Tiny>(steps, "tiny", group);
    add_rank_step<Mlp>(steps, "mlp", group);
    add_rank_step<Cnn>(steps, "cnn", group);
  };
  if (way == "ranks") {
    serve_ranks(/*bound=*/false, add_rank_steps);
    return 0;
  }
  if (way == "processes") {
    serve_process(add_rank_steps);
    return 0;
  }
  Steps steps;
  add_steps<Tiny>(steps, "tiny");
  add_steps<Mlp>(steps, "mlp");
  add_steps<Cnn>(steps, "cnn");
  serve(steps);
}
