// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <utility>
#include <vector>

// Learning rates that change with the epoch. A schedule is a function of the rate that the
// optimiser was made with and of the epoch, counted from 0; an LRScheduler applies it to an
// optimiser.
namespace lockstep::optim {

// Any callable will do: torch's LambdaLR is `[](double lr, std::int64_t epoch) { ... }`.
using LRSchedule = std::function<double(double lr, std::int64_t epoch)>;

// Multiplies the rate by gamma every step_size epochs: lr · gamma^⌊epoch / step_size⌋.
//
// **Torch counterpart.** torch.optim.lr_scheduler.StepLR.
// **Threads and exceptions.** A ValueError for a step_size below 1.
struct StepLR {
  std::int64_t step_size = 1;
  double gamma = 0.1;

  double operator()(double lr, std::int64_t epoch) const {
    check<ValueError>(step_size > 0, "StepLR: expected a step_size above 0, got ", step_size);
    return lr * std::pow(gamma, static_cast<double>(epoch / step_size));
  }
};

// Goes from start_factor · lr to end_factor · lr in equal steps over total_iters epochs and stays
// there: a warm-up, with the default values.
//
// **Torch counterpart.** torch.optim.lr_scheduler.LinearLR.
// **Threads and exceptions.** A ValueError for a start_factor outside (0, 1], an end_factor outside
// [0, 1] and total_iters below 1.
struct LinearLR {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;

  double operator()(double lr, std::int64_t epoch) const {
    check<ValueError>(start_factor > 0 && start_factor <= 1,
                      "LinearLR: expected a start_factor above 0 and at most 1, got ",
                      start_factor);
    check<ValueError>(end_factor >= 0 && end_factor <= 1,
                      "LinearLR: expected an end_factor between 0 and 1, got ", end_factor);
    check<ValueError>(total_iters > 0, "LinearLR: expected total_iters above 0, got ", total_iters);
    const double part =
        static_cast<double>(std::min(epoch, total_iters)) / static_cast<double>(total_iters);
    return lr * (start_factor + (end_factor - start_factor) * part);
  }
};

// Goes from lr down to eta_min on half a cosine wave over T_max epochs, and on along the wave.
//
// **Torch counterpart.** torch.optim.lr_scheduler.CosineAnnealingLR (Loshchilov and Hutter, 2017).
// **Threads and exceptions.** A ValueError for a T_max below 1.
struct CosineAnnealingLR {
  std::int64_t T_max = 1;
  double eta_min = 0;

  double operator()(double lr, std::int64_t epoch) const {
    check<ValueError>(T_max > 0, "CosineAnnealingLR: expected a T_max above 0, got ", T_max);
    const double angle = std::numbers::pi * static_cast<double>(epoch) / static_cast<double>(T_max);
    return eta_min + (lr - eta_min) * (1 + std::cos(angle)) / 2;
  }
};

// One schedule after another: the next begins, at its own epoch 0, at each milestone.
//
// **Torch counterpart.** torch.optim.lr_scheduler.SequentialLR.
// **Threads and exceptions.** A ValueError unless there is a schedule more than milestones, and
// these are above 0 and rise.
// **Example.** optim::SequentialLR({optim::LinearLR{}, optim::CosineAnnealingLR{.T_max = 85}}, {5})
class SequentialLR {
 public:
  SequentialLR(std::vector<LRSchedule> schedules, std::vector<std::int64_t> milestones)
      : schedules_(std::move(schedules)), milestones_(std::move(milestones)) {
    check<ValueError>(schedules_.size() == milestones_.size() + 1,
                      "SequentialLR: expected one schedule more than milestones, got ",
                      schedules_.size(), " schedules and ", milestones_.size(), " milestones");
    std::int64_t last = 0;
    for (const std::int64_t milestone : milestones_) {
      check<ValueError>(milestone > last, "SequentialLR: milestone ", milestone,
                        " does not come after ", last);
      last = milestone;
    }
  }

  double operator()(double lr, std::int64_t epoch) const {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
    const std::int64_t begin = next == milestones_.begin() ? 0 : *(next - 1);
    return schedules_[static_cast<std::size_t>(next - milestones_.begin())](lr, epoch - begin);
  }

 private:
  std::vector<LRSchedule> schedules_;
  std::vector<std::int64_t> milestones_;
};

// Sets an optimiser's learning rate by a schedule: at once to that of epoch 0, and by each step to
// that of the next epoch.
//
// It refers to the optimiser, which has to outlive it and to stay where it is.
//
// **Torch counterpart.** torch.optim.lr_scheduler.LRScheduler, whose step is called after the
// epoch's. The rates are the closed forms that torch documents.
// **Threads and exceptions.** One thread at a time. A ValueError for a schedule that is not valid
// or that gives a rate which no optimiser takes.
// **Example.**
//   optim::LRScheduler schedule{sgd, optim::StepLR{.step_size = 30}};
//   for (int epoch = 0; epoch < 90; ++epoch, schedule.step()) { ... }
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, LRSchedule schedule)
      : optimizer_(&optimizer), schedule_(std::move(schedule)), base_lr_(optimizer.lr()) {
    check<ValueError>(schedule_ != nullptr, "LRScheduler: the schedule is empty");
    optimizer_->set_lr(schedule_(base_lr_, epoch_));
  }

  void step() {
    optimizer_->set_lr(schedule_(base_lr_, epoch_ + 1));
    ++epoch_;
  }

  std::int64_t last_epoch() const { return epoch_; }
  double last_lr() const { return schedule_(base_lr_, epoch_); }

  // **Torch counterpart.** LRScheduler.state_dict: the epoch and the base rate, not the schedule.
  StateDict state_dict() const {
    return {detail::named_number("last_epoch", epoch_), detail::named_number("base_lr", base_lr_)};
  }

  // Goes on where another was, and sets the optimiser's rate accordingly.
  //
  // **Torch counterpart.** LRScheduler.load_state_dict, which leaves the optimiser alone.
  // **Threads and exceptions.** A ModuleError that lists what is missing, unexpected or no epoch; a
  // ValueError for a rate that no optimiser takes; nothing has been changed then.
  void load_state_dict(const StateDict& dict) {
    detail::StateReader reader("LRScheduler", dict);
    const auto epoch = reader.number<std::int64_t>("last_epoch");
    const auto base_lr = reader.number<double>("base_lr");
    if (epoch < 0) reader.misfit("last_epoch", "is negative");
    reader.finish();
    optimizer_->set_lr(schedule_(base_lr, epoch));
    epoch_ = epoch;
    base_lr_ = base_lr;
  }

 private:
  Optimizer* optimizer_;
  LRSchedule schedule_;
  double base_lr_;
  std::int64_t epoch_ = 0;
};

}  // namespace lockstep::optim
