// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ostream>
#include <vector>

namespace gpu_benchmark {

// Microseconds that `work` takes until what it has issued is done. What it returns is destroyed
// behind the second look at the clock.
template <class Work>
double time_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  [[maybe_unused]] const auto result = work();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(end - start).count();
}

// The quartiles of some samples: the middle one is the median.
struct Quartiles {
  double lower, median, upper;

  friend std::ostream& operator<<(std::ostream& out, const Quartiles& quartiles) {
    return out << quartiles.lower << '\t' << quartiles.median << '\t' << quartiles.upper;
  }
};

// Of at least one sample, by linear interpolation between neighbours.
inline Quartiles quartiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    const double weight = place - static_cast<double>(below);
    return samples[below] * (1 - weight) + samples[above] * weight;
  };
  return {at(0.25), at(0.5), at(0.75)};
}

struct Comparison {
  Quartiles first, second;
};

// Both sides under the same conditions: by turns, and each as often the first of the two.
template <class First, class Second>
Comparison compare(int warm_up, int rounds, const First& first, const Second& second) {
  std::vector<double> of_first, of_second;
  for (int round = -warm_up; round < rounds; ++round) {
    double times[2];
    if (round % 2 == 0) {
      times[0] = time_of(first);
      times[1] = time_of(second);
    } else {
      times[1] = time_of(second);
      times[0] = time_of(first);
    }
    if (round < 0) continue;
    of_first.push_back(times[0]);
    of_second.push_back(times[1]);
  }
  return {quartiles(of_first), quartiles(of_second)};
}

}  // namespace gpu_benchmark
