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
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The first group's name has no number: it may be the only one.
inline std::string lr_name(const std::string& name, std::size_t group) {
  return group == 0 ? name : name + "." + std::to_string(group);
}

// The rate after `epoch` of a group whose original rate is `base` and whose present one is `lr`.
inline double next_lr(const optim::LRSchedule& schedule, double base, double lr,
                      std::int64_t epoch) {
  if (const auto* const several = schedule.target<optim::SequentialLR>()) {
    const auto [current, begin] = several->schedule_at(epoch + 1);
    if (begin <= epoch) return next_lr(current, base, lr, epoch - begin);
    return current(base, 0);
  }
  const bool goes_on = schedule.target<optim::StepLR>() || schedule.target<optim::LinearLR>() ||
                       schedule.target<optim::CosineAnnealingLR>();
  if (epoch < 0 && goes_on) return schedule(lr, 0);
  const double next = schedule(base, epoch + 1);
  if (!goes_on) return next;
  const double expected = schedule(base, epoch);
  if (lr == expected) return next;
  if (const auto* const steps = schedule.target<optim::StepLR>()) {
    return (epoch + 1) % steps->step_size == 0 ? lr * steps->gamma : lr;
  }
  // The other two are linear in the rate, so two values give the r of LRScheduler's contract.
  const double offset = schedule(0, epoch);
  const double slope = schedule(1, epoch) - offset;
  return slope == 0 ? lr + (next - expected) : schedule((lr - offset) / slope, epoch + 1);
}

}  // namespace lockstep::detail

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
  for (const LRSchedule& schedule : schedules_) {
    check<ValueError>(schedule != nullptr, "SequentialLR: a schedule is empty");
  }
  std::int64_t last = 0;
  for (const std::int64_t milestone : milestones_) {
    check<ValueError>(milestone > last, "SequentialLR: milestone ", milestone,
                      " does not come after ", last);
    last = milestone;
  }
}

LOCKSTEP_INLINE double SequentialLR::operator()(double lr, std::int64_t epoch) const {
  const auto [current, begin] = schedule_at(epoch);
  return current(lr, epoch - begin);
}

LOCKSTEP_INLINE std::pair<const LRSchedule&, std::int64_t> SequentialLR::schedule_at(
    std::int64_t epoch) const {
  check<ValueError>(!schedules_.empty(), "SequentialLR: it has been moved from");
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  const std::int64_t begin = next == milestones_.begin() ? 0 : *(next - 1);
  return {schedules_[static_cast<std::size_t>(next - milestones_.begin())], begin};
}

LOCKSTEP_INLINE LRScheduler::LRScheduler(Optimizer& optimizer, LRSchedule schedule)
    : optimizer_(&optimizer), schedule_(std::move(schedule)) {
  check<ValueError>(schedule_ != nullptr, "LRScheduler: the schedule is empty");
  step();
}

LOCKSTEP_INLINE void LRScheduler::step() {
  std::vector<double> base_lrs = base_lrs_;
  std::vector<double> lrs;
  for (std::size_t group = 0; group < optimizer_->group_count(); ++group) {
    if (group == base_lrs.size()) base_lrs.push_back(optimizer_->initial_lr(group));
    lrs.push_back(detail::next_lr(schedule_, base_lrs[group], optimizer_->lr(group), epoch_));
  }
  optimizer_->set_lrs(lrs);
  base_lrs_ = std::move(base_lrs);
  last_lrs_ = std::move(lrs);
  ++epoch_;
}

LOCKSTEP_INLINE double LRScheduler::last_lr(std::size_t group) const {
  check<IndexError>(group < last_lrs_.size(), "LRScheduler: group ", group,
                    " has not taken part yet: there are ", last_lrs_.size());
  return last_lrs_[group];
}

LOCKSTEP_INLINE StateDict LRScheduler::state_dict() const {
  StateDict dict{detail::named_number("last_epoch", epoch_)};
  for (std::size_t group = 0; group < base_lrs_.size(); ++group) {
    dict.push_back(detail::named_number(detail::lr_name("base_lr", group), base_lrs_[group]));
    // The result of all schedulers of the optimiser, in whatever order they are loaded.
    dict.push_back(detail::named_number(detail::lr_name("lr", group), optimizer_->lr(group)));
    dict.push_back(detail::named_number(detail::lr_name("last_lr", group), last_lrs_[group]));
  }
  return dict;
}

LOCKSTEP_INLINE void LRScheduler::load_state_dict(const StateDict& dict) {
  detail::StateReader reader("LRScheduler", dict);
  const std::int64_t epoch = reader.count("last_epoch");
  std::vector<double> base_lrs;
  std::vector<std::optional<double>> given;
  std::vector<std::optional<double>> last;
  const auto number_if_there = [&reader](const std::string& name) {
    return reader.has_any(name) ? std::optional(reader.number<double>(name)) : std::nullopt;
  };
  do {
    const std::size_t group = base_lrs.size();
    base_lrs.push_back(reader.number<double>(detail::lr_name("base_lr", group)));
    given.push_back(number_if_there(detail::lr_name("lr", group)));
    last.push_back(number_if_there(detail::lr_name("last_lr", group)));
  } while (reader.has_any(detail::lr_name("base_lr", base_lrs.size())) &&
           base_lrs.size() < optimizer_->group_count());
  reader.finish();
  std::vector<double> lrs;
  std::vector<double> last_lrs;
  for (std::size_t group = 0; group < base_lrs.size(); ++group) {
    check_setting("LRScheduler", "base_lr", base_lrs[group]);
    check_setting("LRScheduler", "last_lr", last[group].value_or(0));
    lrs.push_back(given[group] ? *given[group] : schedule_(base_lrs[group], epoch));
    last_lrs.push_back(last[group].value_or(lrs[group]));
  }
  while (lrs.size() < optimizer_->group_count()) lrs.push_back(optimizer_->lr(lrs.size()));
  optimizer_->set_lrs(lrs);
  epoch_ = epoch;
  base_lrs_ = std::move(base_lrs);
  last_lrs_ = std::move(last_lrs);
}

}  // namespace lockstep::optim
