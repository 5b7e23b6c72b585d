// SPDX-License-Identifier: Apache-2.0
//
// Steps that all ranks of a group take together, timed in rounds.
#pragma once

#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/creation.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace rounds {

namespace ls = lockstep;
using Clock = std::chrono::steady_clock;

inline double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Calls fn(group) on so many threads, each with a host device; or, without a number, once: in a
// process that mpirun has started, or alone.
template <class F>
void on_ranks(int threads, const F& fn) {
  if (threads == 0) return fn(ls::distributed::init_process_group());
  ls::set_host_device_count(threads);
  ls::distributed::run(ls::host_devices(), fn);
}

// The greatest of the ranks' numbers, on every rank.
inline double greatest_of_ranks(const ls::distributed::ProcessGroup& group, double mine) {
  const ls::Tensor value = ls::from_values(std::vector<double>{mine}, {1});
  (void)group.blocking().all_reduce(value, ls::distributed::ReduceOp::max);
  return value.item();
}

struct Options {
  int count = 9;
  double milliseconds = 200;  // about as long as a round takes
};

// In microseconds: the median, the least and the greatest of the rounds' medians of a step.
struct Figure {
  double median = 0;
  double least = 0;
  double greatest = 0;
};

inline Figure figure_of(const std::vector<double>& medians) {
  const auto [least, greatest] = std::minmax_element(medians.begin(), medians.end());
  return {median(medians), *least, *greatest};
}

// The median time of a step, over `steps` of them on the slowest rank.
template <class Step>
double time_round(const ls::distributed::ProcessGroup& group, int steps, const Step& step) {
  std::vector<double> samples;
  (void)group.blocking().barrier();
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point start = Clock::now();
    step();
    samples.push_back(microseconds(Clock::now() - start));
  }
  return greatest_of_ranks(group, median(samples));
}

// How many steps make a round, on every rank the same; the first steps are not timed.
template <class Step>
int steps_of_round(const ls::distributed::ProcessGroup& group, const Options& options,
                   const Step& step) {
  (void)time_round(group, 3, step);
  const double each = time_round(group, 3, step);
  return static_cast<int>(std::clamp(options.milliseconds * 1000 / each, 3.0, 5000.0));
}

// All ranks call it.
template <class Step>
Figure measure(const ls::distributed::ProcessGroup& group, const Options& options,
               const Step& step) {
  const int steps = steps_of_round(group, options, step);
  std::vector<double> medians;
  for (int round = 0; round < options.count; ++round) {
    medians.push_back(time_round(group, steps, step));
  }
  return figure_of(medians);
}

}  // namespace rounds
