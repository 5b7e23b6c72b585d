// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE double StepLR::operator()(double lr, std::int64_t epoch) const {
  check<ValueError>(step_size > 0, "StepLR: expected a step_size above 0, got ", step_size);
  return lr * std::pow(gamma, static_cast<double>(epoch / step_size));
}

LOCKSTEP_INLINE double LinearLR::operator()(double lr, std::int64_t epoch) const {
  check<ValueError>(start_factor > 0 && start_factor <= 1,
                    "LinearLR: expected a start_factor above 0 and at most 1, got ", start_factor);
  check<ValueError>(end_factor >= 0 && end_factor <= 1,
                    "LinearLR: expected an end_factor between 0 and 1, got ", end_factor);
  check<ValueError>(total_iters > 0, "LinearLR: expected total_iters above 0, got ", total_iters);
  const double part =
      static_cast<double>(std::min(epoch, total_iters)) / static_cast<double>(total_iters);
  return lr * (start_factor + (end_factor - start_factor) * part);
}

LOCKSTEP_INLINE double CosineAnnealingLR::operator()(double lr, std::int64_t epoch) const {
  check<ValueError>(T_max > 0, "CosineAnnealingLR: expected a T_max above 0, got ", T_max);
  const double angle = std::numbers::pi * static_cast<double>(epoch) / static_cast<double>(T_max);
  return eta_min + (lr - eta_min) * (1 + std::cos(angle)) / 2;
}

LOCKSTEP_INLINE SequentialLR::SequentialLR(std::vector<LRSchedule> schedules,
                                           std::vector<std::int64_t> milestones)
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

LOCKSTEP_INLINE double SequentialLR::operator()(double lr, std::int64_t epoch) const {
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  const std::int64_t begin = next == milestones_.begin() ? 0 : *(next - 1);
  return schedules_[static_cast<std::size_t>(next - milestones_.begin())](lr, epoch - begin);
}

// The first group's has no number: it may be the only one.
inline std::string base_lr_name(std::size_t group) {
  return group == 0 ? "base_lr" : "base_lr." + std::to_string(group);
}

// The base rates, and those of groups that are new.
inline std::vector<double> with_new_groups(std::vector<double> base_lrs,
                                           const Optimizer& optimizer) {
  while (base_lrs.size() < optimizer.group_count()) {
    base_lrs.push_back(optimizer.lr(base_lrs.size()));
  }
  return base_lrs;
}

LOCKSTEP_INLINE LRScheduler::LRScheduler(Optimizer& optimizer, LRSchedule schedule)
    : optimizer_(&optimizer),
      schedule_(std::move(schedule)),
      base_lrs_(with_new_groups({}, optimizer)) {
  check<ValueError>(schedule_ != nullptr, "LRScheduler: the schedule is empty");
  apply(base_lrs_, epoch_);
}

LOCKSTEP_INLINE void LRScheduler::step() {
  std::vector<double> base_lrs = with_new_groups(base_lrs_, *optimizer_);
  apply(base_lrs, epoch_ + 1);
  base_lrs_ = std::move(base_lrs);
  ++epoch_;
}

LOCKSTEP_INLINE double LRScheduler::last_lr(std::size_t group) const {
  check<IndexError>(group < base_lrs_.size(), "LRScheduler: group ", group,
                    " has not taken part yet: there are ", base_lrs_.size());
  return schedule_(base_lrs_[group], epoch_);
}

LOCKSTEP_INLINE void LRScheduler::apply(const std::vector<double>& base_lrs,
                                        std::int64_t epoch) const {
  std::vector<double> lrs;
  for (std::size_t group = 0; group < optimizer_->group_count(); ++group) {
    lrs.push_back(group < base_lrs.size() ? schedule_(base_lrs[group], epoch)
                                          : optimizer_->lr(group));
  }
  optimizer_->set_lrs(lrs);
}

LOCKSTEP_INLINE StateDict LRScheduler::state_dict() const {
  StateDict dict{detail::named_number("last_epoch", epoch_)};
  for (std::size_t group = 0; group < base_lrs_.size(); ++group) {
    dict.push_back(detail::named_number(base_lr_name(group), base_lrs_[group]));
  }
  return dict;
}

LOCKSTEP_INLINE void LRScheduler::load_state_dict(const StateDict& dict) {
  detail::StateReader reader("LRScheduler", dict);
  const auto epoch = reader.number<std::int64_t>("last_epoch");
  std::vector<double> base_lrs{reader.number<double>(base_lr_name(0))};
  while (reader.has_any(base_lr_name(base_lrs.size())) &&
         base_lrs.size() < optimizer_->group_count()) {
    base_lrs.push_back(reader.number<double>(base_lr_name(base_lrs.size())));
  }
  if (epoch < 0) reader.misfit("last_epoch", "is negative");
  reader.finish();
  apply(base_lrs, epoch);
  epoch_ = epoch;
  base_lrs_ = std::move(base_lrs);
}

}  // namespace lockstep::optim
