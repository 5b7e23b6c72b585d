// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/optim/lr_scheduler.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace example {

// A learning rate that rises over the first tenth of the steps and falls to zero over the others:
// the rise keeps small differences of f32's rounding from growing in the first, steepest steps.
inline lockstep::optim::LRSchedule rise_and_fall(std::int64_t steps) {
  return [all = static_cast<double>(steps)](double lr, std::int64_t step) {
    const double progress = std::min(static_cast<double>(step + 1) / all, 1.0);
    return lr * std::min(10 * progress, (1 - progress) * 10 / 9);
  };
}

// A runtime_error if the path to save to has no folder: better before an epoch than after it.
inline void check_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  std::error_code ignored;  // a folder that cannot be asked about is one that is not there
  if (path.empty() || folder.empty() || std::filesystem::is_directory(folder, ignored)) return;
  throw std::runtime_error("cannot save " + path.string() + ": there is no folder " +
                           folder.string());
}

// A training run, as far as it outlives the program: between two epochs it is saved whole in one
// file, and a program that was given the same options and resumes it computes the same bits as one
// that never stopped.
//
// Holds references to what is trained.
template <class Model, class Optimizer>
class TrainingRun {
 public:
  std::int64_t epoch = 0;  // epochs that are done
  std::int64_t step = 0;   // steps that are done

  // `name` says what the model is: the file of another one is refused.
  TrainingRun(std::string name, Model& model, Optimizer& optimizer,
              lockstep::optim::LRScheduler& schedule)
      : name_(std::move(name)), model_(model), optimizer_(optimizer), schedule_(schedule) {}

  // The file that was there is replaced when the new one is whole. Without a path does nothing.
  void save(const std::filesystem::path& path) const {
    if (path.empty()) return;
    lockstep::io::save_checkpoint(path, {.model = model_.state_dict(),
                                         .optimizer = optimizer_.state_dict(),
                                         .lr_scheduler = schedule_.state_dict(),
                                         .random = lockstep::io::random_state(),
                                         .epoch = epoch,
                                         .step = step,
                                         .metadata = {{"model", name_}}});
  }

  // Goes on where the file was saved. Without a path does nothing.
  void resume(const std::filesystem::path& path) {
    if (path.empty()) return;
    const lockstep::io::Checkpoint last = lockstep::io::load_checkpoint(path);
    const auto name = last.metadata.find("model");
    if (name == last.metadata.end() || name->second != name_) {
      throw std::runtime_error(path.string() + " holds another model (" +
                               (name == last.metadata.end() ? "of no name" : name->second) +
                               ") than this one (" + name_ + ")");
    }
    model_.load_state_dict(last.model);
    optimizer_.load_state_dict(last.optimizer);
    schedule_.load_state_dict(last.lr_scheduler);
    lockstep::io::set_random_state(last.random);
    epoch = last.epoch;
    step = last.step;
  }

 private:
  const std::string name_;
  Model& model_;
  Optimizer& optimizer_;
  lockstep::optim::LRScheduler& schedule_;
};

}  // namespace example
