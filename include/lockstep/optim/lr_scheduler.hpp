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

// Learning rates that change with the epoch. A schedule is a function of the optimiser's original
// rate and of the epoch, counted from 0; an LRScheduler applies it to an optimiser.
namespace lockstep::optim {

// Any callable will do, as in torch's LambdaLR: `[](double lr, std::int64_t epoch) { ... }`. Like
// LambdaLR it overrides what other schedulers of the optimiser do.
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
// there. The default values make a warm-up.
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

// Goes from lr down to eta_min on half a cosine wave over T_max epochs, and then continues along
// the wave.
//
// **Torch counterpart.** torch.optim.lr_scheduler.CosineAnnealingLR (Loshchilov and Hutter, 2017).
// **Threads and exceptions.** A ValueError for a T_max below 1.
struct CosineAnnealingLR {
  std::int64_t T_max = 1;
  double eta_min = 0;

  double operator()(double lr, std::int64_t epoch) const;
};

// One schedule after another: at each milestone the next one begins, at its own epoch 0 and from
// the optimiser's original rate, wherever the one before has ended and whatever has changed the
// rate.
//
// **Torch counterpart.** torch.optim.lr_scheduler.SequentialLR.
// **Threads and exceptions.** A ValueError for an empty schedule, and unless there is one schedule
// more than milestones, which are above 0 and ascend.
// **Example.** optim::SequentialLR({optim::LinearLR{}, optim::CosineAnnealingLR{.T_max = 85}}, {5})
class SequentialLR {
 public:
  SequentialLR(std::vector<LRSchedule> schedules, std::vector<std::int64_t> milestones);

  double operator()(double lr, std::int64_t epoch) const;

  // The schedule of an epoch, and the epoch at which it begins.
  std::pair<const LRSchedule&, std::int64_t> schedule_at(std::int64_t epoch) const;

 private:
  std::vector<LRSchedule> schedules_;
  std::vector<std::int64_t> milestones_;
};

// Sets the learning rate of each group of an optimiser by a schedule of the group's original rate.
// The constructor sets that of epoch 0, and each step that of the next epoch.
//
// If another scheduler or set_lr() has changed the rate, a step continues from the present rate:
// StepLR multiplies it by gamma, and the other schedules above go on as from the original rate that
// would have led to it. If none would, for example because a schedule has reached 0, they add the
// difference of their own step. A schedule of the program's own sets its rate regardless.
//
// It refers to the optimiser, which must outlive it and must not be moved. A group added later
// takes part from the next step on, which continues from the group's present rate; with a schedule
// of the program's own, from its original rate.
//
// **Torch counterpart.** torch.optim.lr_scheduler.LRScheduler, whose step is called after the
// epoch's. The rates are the closed forms that torch documents, or those of its "chainable" forms
// if several schedulers share an optimiser.
// **Threads and exceptions.** One thread at a time. A ValueError for an invalid schedule, or one
// that gives an invalid rate.
// **Example.**
//   optim::LRScheduler schedule{sgd, optim::StepLR{.step_size = 30}};
//   for (int epoch = 0; epoch < 90; ++epoch, schedule.step()) { ... }
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, LRSchedule schedule);

  void step();

  std::int64_t last_epoch() const { return epoch_; }
  // The rate that the last step set; an IndexError for a group that has not taken part yet.
  double last_lr(std::size_t group = 0) const;

  // **Torch counterpart.** LRScheduler.state_dict: the epoch, the base rates and the rates, not the
  // schedule.
  StateDict state_dict() const;

  // Continues where another scheduler was, and sets the optimiser's rates to those at that time.
  //
  // **Torch counterpart.** LRScheduler.load_state_dict, which leaves the optimiser alone.
  // **Threads and exceptions.** A ModuleError that lists what is missing, unexpected or no epoch; a
  // ValueError for an invalid rate; then nothing is changed.
  void load_state_dict(const StateDict& dict);

 private:
  Optimizer* optimizer_;
  LRSchedule schedule_;
  // Of the groups that existed at the last step.
  std::vector<double> base_lrs_;
  std::vector<double> last_lrs_;
  std::int64_t epoch_ = -1;  // until the constructor makes the first step
};

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/lr_scheduler.ipp>
#endif
