// SPDX-License-Identifier: Apache-2.0
//
// served_steps.hpp for ranks: two threads of this process, or processes that an MPI has started.
#pragma once

#include "served_steps.hpp"

#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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

// The same between processes, of which the first has the standard input.
inline std::optional<Order> next_order_of(const lockstep::distributed::ProcessGroup& group) {
  namespace ls = lockstep;
  std::optional<Order> order;
  if (group.rank() == 0) order = next_order();
  const auto shared = [&group]<class T>(const std::vector<T>& values) {
    const ls::Tensor tensor =
        ls::from_values(values, {static_cast<std::int64_t>(values.size())}, group.device());
    group.broadcast(tensor, 0).wait();
    return tensor.to_vector<T>();
  };
  const std::string name = order ? order->name : "";
  const auto numbers =
      shared(std::vector<std::int64_t>{static_cast<std::int64_t>(name.size()),
                                       order ? order->samples : 0, order ? order->calls : 0});
  if (numbers[0] == 0) return std::nullopt;
  std::vector<std::uint8_t> letters(name.begin(), name.end());
  letters.resize(static_cast<std::size_t>(numbers[0]));
  letters = shared(letters);
  return Order{std::string(letters.begin(), letters.end()), numbers[1], numbers[2]};
}

// Serves what `add_steps(steps, group)` adds on a rank; a step is one of all ranks at once.
template <class AddSteps, class Next>
void serve_rank(const lockstep::distributed::ProcessGroup& group, AddSteps& add_steps, Next next) {
  Steps steps;
  add_steps(steps, group);
  while (const std::optional<Order> order = next()) {
    const double taken = median(samples_of(steps.at(order->name), *order));
    if (group.rank() == 0) answer(taken);
  }
}

template <class AddSteps>
void serve_ranks(bool bound, AddSteps add_steps) {
  using lockstep::distributed::BindTo;
  Orders orders;
  const auto body = [&](const lockstep::distributed::ProcessGroup& group) {
    serve_rank(group, add_steps, [&] { return orders.next(group.rank()); });
  };
  lockstep::distributed::run({"cpu:0", "cpu:1"}, body,
                             {.bind_to = bound ? BindTo::core : BindTo::none});
}

// In a process that is a rank.
template <class AddSteps>
void serve_process(AddSteps add_steps) {
  const auto group = lockstep::distributed::init_process_group();
  serve_rank(group, add_steps, [&] { return next_order_of(group); });
}

}  // namespace compare
