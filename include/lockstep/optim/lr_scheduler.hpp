// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

// Learning rates that change with the epoch. A schedule is a function of the rate that the
// optimiser was made with and of the epoch, counted from 0; an LRScheduler applies it to an
// optimiser.
namespace lockstep::optim {

// Any callable will do, as in torch's LambdaLR: `[](double lr, std::int64_t epoch) { ... }`. Like
// that it sets aside what other schedulers of the optimiser do.
using LRSchedule = std::function<double(double lr, std::int64_t epoch)>;

// Multiplies the rate by gamma every step_size epochs: lr · gamma^⌊epoch / step_size⌋.
//
// **Torch counterpart.** torch.optim.lr_scheduler.StepLR.
// **Threads and exceptions.** A ValueError for a step_size below 1.
struct StepLR {
  std::int64_t step_size = 1;
  double gamma = 0.1;

  double operator()(double lr, std::int64_t epoch) const;
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

  double operator()(double lr, std::int64_t epoch) const;
};

// Goes from lr down to eta_min on half a cosine wave over T_max epochs, and on along the wave.
//
// **Torch counterpart.** torch.optim.lr_scheduler.CosineAnnealingLR (Loshchilov and Hutter, 2017).
// **Threads and exceptions.** A ValueError for a T_max below 1.
struct CosineAnnealingLR {
  std::int64_t T_max = 1;
  double eta_min = 0;

  double operator()(double lr, std::int64_t epoch) const;
};

// One schedule after another: the next begins, at its own epoch 0, at each milestone. Each begins
// with the rate that the optimiser was made with, wherever the one before it has ended and whatever
// has changed the rate.
//
// **Torch counterpart.** torch.optim.lr_scheduler.SequentialLR.
// **Threads and exceptions.** A ValueError for an empty schedule, and unless there is a schedule
// more than milestones, and these are above 0 and rise.
// **Example.** optim::SequentialLR({optim::LinearLR{}, optim::CosineAnnealingLR{.T_max = 85}}, {5})
class SequentialLR {
 public:
  SequentialLR(std::vector<LRSchedule> schedules, std::vector<std::int64_t> milestones);

  double operator()(double lr, std::int64_t epoch) const;

  // The schedule that an epoch belongs to, and the epoch at which it begins.
  std::pair<const LRSchedule&, std::int64_t> schedule_at(std::int64_t epoch) const;

 private:
  std::vector<LRSchedule> schedules_;
  std::vector<std::int64_t> milestones_;
};

// Sets the learning rate of each group of an optimiser by a schedule of the rate that the group was
// made with: at once to that of epoch 0, and by each step to that of the next epoch.
//
// Where the rate is another one than the schedule's, since another scheduler of the optimiser or
// set_lr() has changed it, a step of the schedules above goes on from that one: from f(r, epoch) to
// f(r, epoch + 1), for the r at which the schedule f would be there; StepLR multiplies by gamma.
// Where there is no such r, as once a schedule has reached 0, the difference is added that the step
// makes alone. A schedule of the program's own sets its rate, whatever the rate was.
//
// It refers to the optimiser, which has to outlive it and to stay where it is. A group that is
// added to it later takes part from the next step on, which goes on from the rate that the group
// has by then; for a schedule of the program's own that is the rate that the group was made with.
//
// **Torch counterpart.** torch.optim.lr_scheduler.LRScheduler, whose step is called after the
// epoch's. The rates are the closed forms that torch documents, and those of its "chainable" forms
// where several schedulers share an optimiser.
// **Threads and exceptions.** One thread at a time. A ValueError for a schedule that is not valid
// or that gives a rate which no optimiser takes.
// **Example.**
//   optim::LRScheduler schedule{sgd, optim::StepLR{.step_size = 30}};
//   for (int epoch = 0; epoch < 90; ++epoch, schedule.step()) { ... }
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, LRSchedule schedule);

  void step();

  std::int64_t last_epoch() const { return epoch_; }
  // The rate that the last step set. An IndexError for a group that has not taken part yet.
  double last_lr(std::size_t group = 0) const;

  // **Torch counterpart.** LRScheduler.state_dict: the epoch, the base rates and the rates, not the
  // schedule.
  StateDict state_dict() const;

  // Goes on where another was, and sets the optimiser's rates to those that it had.
  //
  // **Torch counterpart.** LRScheduler.load_state_dict, which leaves the optimiser alone.
  // **Threads and exceptions.** A ModuleError that lists what is missing, unexpected or no epoch; a
  // ValueError for a rate that no optimiser takes; nothing has been changed then.
  void load_state_dict(const StateDict& dict);

 private:
  Optimizer* optimizer_;
  LRSchedule schedule_;
  // Of the groups that there were at the last step.
  std::vector<double> base_lrs_;
  std::vector<double> last_lrs_;
  std::int64_t epoch_ = -1;  // before the first step, which the constructor makes
};

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/lr_scheduler.ipp>
#endif
