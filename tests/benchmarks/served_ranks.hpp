// SPDX-License-Identifier: Apache-2.0
//
// served_steps.hpp for two ranks that are threads of this process.
#pragma once

#include "served_steps.hpp"

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>

#include <condition_variable>
#include <mutex>
#include <optional>

namespace compare {

// Hands rank 0's orders to the other rank, which sleeps in between.
class Orders {
 public:
  std::optional<Order> next(int rank) {
    if (rank != 0) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return posted_ != taken_; });
      taken_ = posted_;
      return order_;
    }
    std::optional<Order> order = next_order();
    {
      const std::lock_guard lock(mutex_);
      order_ = order;
      ++posted_;
    }
    changed_.notify_one();
    return order;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> order_;
  long posted_ = 0;
  long taken_ = 0;
};

// Serves what `add_steps(steps, group)` adds on each rank; a step is one of both ranks at once.
template <class AddSteps>
void serve_ranks(bool bound, AddSteps add_steps) {
  using lockstep::distributed::BindTo;
  Orders orders;
  const auto serve_rank = [&](const lockstep::distributed::ProcessGroup& group) {
    Steps steps;
    add_steps(steps, group);
    while (const std::optional<Order> order = orders.next(group.rank())) {
      const double taken = median(samples_of(steps.at(order->name), *order));
      if (group.rank() == 0) answer(taken);
    }
  };
  lockstep::distributed::run({"cpu:0", "cpu:1"}, serve_rank,
                             {.bind_to = bound ? BindTo::core : BindTo::none});
}

}  // namespace compare
