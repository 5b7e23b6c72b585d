// SPDX-License-Identifier: Apache-2.0

// Trains a small model on the ranks that mpirun has started, one of which fails:
//
//   fault_main FAULT RANK MARK
//
// In the third step that rank
//   is killed                       killed
//   is stopped                      stopped
//   sleeps for ever                 sleeps
//   throws in forward               throws
//   takes part no more and returns  fewer_batches
//   calls another collective        other_call
// or instead of all that, while the others receive from it or send to it, it
//   returns                         no_message, not_received
//   is killed                       killed_no_message, killed_not_received
// or while the others make a group of some of the ranks, it
//   sleeps for ever                 no_new_group
//   is killed                       killed_no_new_group
// or it has made another model, other_model, or one of another dtype, other_dtype, or its part of a
// collective has another length, other_length, or that too and it ends at once, other_length_ends.
// second_init is no fault of a rank: all of them
// initialise the process group after they have failed to. Each of the
// others prints its number and the error that it gets; fault.sh checks them, and finds processes by
// MARK.
#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace ls = lockstep;

namespace fault_main {

// Its only output is one line, which no other rank's can get into.
void say(int rank, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  text = "rank " + std::to_string(rank) + " got: " + text + '\n';
  if (::write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::abort();
  }
}

// Nothing on the ranks that do not fail.
void fail(const std::string& fault, const ls::distributed::ProcessGroup& group) {
  if (fault == "killed") ::raise(SIGKILL);
  if (fault == "stopped") ::raise(SIGSTOP);
  if (fault == "sleeps") {
    while (true) ::pause();
  }
  if (fault == "other_call") group.barrier().wait();
}

struct Net {
  ls::nn::Linear first;
  ls::nn::Linear second;
  std::string fault;
  int step = 0;

  ls::Tensor forward(const ls::Tensor& x) {
    if (++step == 3 && fault == "throws") throw std::runtime_error("no room in forward");
    return second(first(x));
  }
};

void train(const std::string& fault, const ls::distributed::ProcessGroup& group) {
  const ls::Dtype dtype = fault == "other_dtype" ? ls::Dtype::f64 : ls::Dtype::f32;
  const std::int64_t width = fault == "other_model" ? 9 : 8;
  // A bucket for each layer.
  ls::DistributedDataParallel model{
      Net{.first{4, width, {.dtype = dtype}}, .second{width, 2, {.dtype = dtype}}, .fault = fault},
      group,
      {.bucket_cap_mb_list = {0.00001}}};
  ls::optim::SGD optimizer{model.parameters(), {.lr = 0.01}};
  for (int step = 1; step <= 20; ++step) {
    if (step == 3 && fault == "fewer_batches") return;
    const ls::Tensor loss = model(ls::ones({2, 4}, {.dtype = dtype})).sum();
    if (step == 3) fail(fault, group);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

// What the others do with a rank that has ended, or does not come.
void exchange(const std::string& fault, int peer, const ls::distributed::ProcessGroup& group) {
  // More than an MPI takes before it is received.
  const ls::Tensor tensor = ls::zeros({1'000'000});
  if (fault == "no_message" || fault == "killed_no_message") group.recv(tensor, peer).wait();
  if (fault == "not_received" || fault == "killed_not_received") group.send(tensor, peer).wait();
  if (fault == "no_new_group" || fault == "killed_no_new_group") (void)group.new_group({0});
}

// A broadcast that the root and the ranks with its length are done with before the rank that
// `differs` has found anything. Another group is as good as before, unless that rank `ends` then:
// the others know of that before they learn in the group why.
void broadcast(bool differs, bool ends, const ls::distributed::ProcessGroup& group) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  const ls::distributed::ProcessGroup rest = group.new_group(all);
  std::exception_ptr error;
  try {
    group.broadcast(ls::zeros({differs ? 900'000 : 1'000'000}), group.size() - 2).wait();
    if (!ends) group.barrier().wait();
  } catch (const std::exception&) {
    if (ends) throw;
    error = std::current_exception();
  }
  try {
    rest.barrier().wait();
  } catch (const ls::distributed::WatchdogError&) {
    group.barrier().wait();
  }
  if (error) std::rethrow_exception(error);
}

// Returns what the first try has thrown.
std::string fail_to_initialise() {
  const char* const key = "LOCKSTEP_COLLECTIVE_TIMEOUT";
  const std::string value = std::getenv(key);
  ::setenv(key, "soon", 1);
  std::string error;
  try {
    (void)ls::distributed::init_process_group();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  ::setenv(key, value.c_str(), 1);
  return error;
}

}  // namespace fault_main

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const bool again = argv[1] == std::string("second_init");
  const std::string first = again ? fault_main::fail_to_initialise() : "";
  const ls::distributed::ProcessGroup world = ls::distributed::init_process_group();
  if (again) {
    const ls::Tensor total = ls::ones({});
    world.all_reduce(total).wait();
    fault_main::say(world.rank(),
                    "a group of " + std::to_string(total.item<int>()) + " after: " + first);
    return EXIT_SUCCESS;
  }
  const bool fails = std::to_string(world.rank()) == argv[2];
  const std::string fault = fails ? argv[1] : "";
  if (fault == "throws") {
    fault_main::train(fault, world);
    return EXIT_SUCCESS;
  }
  const std::string message = argv[1];
  if (fails && (message == "no_message" || message == "not_received")) return EXIT_SUCCESS;
  if (fails && message == "no_new_group") fault_main::fail("sleeps", world);
  if (fails && message.rfind("killed_", 0) == 0) ::raise(SIGKILL);
  try {
    if (message.rfind("other_length", 0) == 0) {
      fault_main::broadcast(fails, message == "other_length_ends", world);
    }
    if (!fails) fault_main::exchange(argv[1], std::atoi(argv[2]), world);
    fault_main::train(fault, world);
  } catch (const std::exception& error) {
    fault_main::say(world.rank(), error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
