// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

// Makes a program that fails as small as it can, while it fails.
namespace lockstep::testing::programs {

namespace shrinking {

// The program without a value: what reads it reads `instead`, or goes as well where there is none.
inline std::optional<Program> without(const Program& program, std::size_t gone,
                                      std::optional<std::size_t> instead = {}) {
  std::vector<bool> kept(program.values(), true);
  std::vector<std::size_t> place(program.values());  // of each value in the result
  kept[gone] = false;
  const auto target = [&](std::size_t value) {
    return value == gone && instead ? *instead : value;
  };
  Program result = program;
  result.inputs.clear();
  result.steps.clear();
  result.outputs.clear();
  std::size_t next = 0;
  for (std::size_t v = 0; v < program.values(); ++v) {
    if (!program.is_input(v)) {
      for (const std::size_t from : program.step_of(v).from) {
        kept[v] = kept[v] && kept[target(from)];
      }
    }
    if (!kept[v]) continue;
    place[v] = next++;
    if (program.is_input(v)) {
      result.inputs.push_back(program.inputs[v]);
    } else {
      Step step = program.step_of(v);
      for (std::size_t& from : step.from) from = place[target(from)];
      result.steps.push_back(std::move(step));
    }
  }
  for (const std::size_t output : program.outputs) {
    if (!kept[target(output)]) continue;
    const std::size_t at = place[target(output)];
    if (result.is_input(at)) continue;
    if (std::find(result.outputs.begin(), result.outputs.end(), at) == result.outputs.end()) {
      result.outputs.push_back(at);
    }
  }
  if (result.inputs.empty() || result.outputs.empty()) return {};
  return result;
}

// The program as far as a value, which is its output.
inline Program until(Program program, std::size_t last) {
  program.steps.resize(last - program.inputs.size() + 1);
  program.outputs = {last};
  return program;
}

// The program with an input in place of a step.
inline Program with_input(const Program& program, std::size_t step) {
  Program result = program;
  const std::size_t place = program.inputs.size();
  result.inputs.push_back({program.sizes_of(step), program.classes_of(step)});
  result.steps.erase(result.steps.begin() + static_cast<std::ptrdiff_t>(step - place));
  const auto moved = [&](std::size_t& value) {
    value = value == step ? place : value < place || value > step ? value : value + 1;
  };
  for (Step& other : result.steps) std::for_each(other.from.begin(), other.from.end(), moved);
  std::erase(result.outputs, step);
  std::for_each(result.outputs.begin(), result.outputs.end(), moved);
  return result;
}

// Programs that are smaller by one thing.
inline std::vector<Program> smaller(const Program& program) {
  std::vector<Program> result;
  const auto add = [&](const auto& change) {
    Program copy = program;
    change(copy);
    result.push_back(std::move(copy));
  };
  for (std::size_t v = program.values(); v-- > 0;) {
    if (const auto rest = without(program, v)) result.push_back(*rest);
    if (program.is_input(v)) continue;
    // Where the rows are not the first dimension there has to be another one.
    if (program.dim != 0 && program.sizes_of(v).empty()) continue;
    if (v + 1 < program.values() || program.outputs.size() > 1) {
      result.push_back(until(program, v));
    }
    if (program.is_scalar(v)) continue;
    if (program.outputs != std::vector<std::size_t>{v}) result.push_back(with_input(program, v));
    for (const std::size_t from : program.step_of(v).from) {
      if (program.is_index(from) || program.sizes_of(from) != program.sizes_of(v)) continue;
      if (const auto rest = without(program, v, from)) result.push_back(*rest);
    }
  }
  for (std::size_t k = 0; k < program.outputs.size() && program.outputs.size() > 1; ++k) {
    add([k](Program& p) { p.outputs.erase(p.outputs.begin() + static_cast<std::ptrdiff_t>(k)); });
  }
  for (std::size_t r = 0; r < program.rounds.size(); ++r) {
    if (program.rounds.size() > 1) {
      add([r](Program& p) { p.rounds.erase(p.rounds.begin() + static_cast<std::ptrdiff_t>(r)); });
    }
    add([r](Program& p) { p.rounds[r].freeze = -1; });
    add([r](Program& p) { p.rounds[r].change = -1; });
    add([r](Program& p) { p.rounds[r].streams = 0; });
    add([r](Program& p) { p.rounds[r].zero_grad = true; });
    add([r](Program& p) { p.rounds[r].no_grad = false; });
    if (program.rounds[r].rows > 1 && program.splitting != Splitting::sizes) {
      add([r](Program& p) { --p.rounds[r].rows; });
    }
  }
  for (std::size_t d = 0; d < program.devices.size() && program.devices.size() > 1; ++d) {
    add([d](Program& p) {
      p.devices.erase(p.devices.begin() + static_cast<std::ptrdiff_t>(d));
      if (p.chunks.empty()) return;
      const std::int64_t rows = p.chunks[d];
      p.chunks.erase(p.chunks.begin() + static_cast<std::ptrdiff_t>(d));
      if (p.splitting != Splitting::sizes) return;
      for (Round& round : p.rounds) round.rows -= rows;
    });
  }
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    add([i](Program& p) { p.inputs[i].requires_grad = false; });
    add([i](Program& p) { p.inputs[i].on_first_device = false; });
  }
  for (std::size_t j = 0; j < program.steps.size(); ++j) {
    add([j](Program& p) { p.steps[j].twice_if_positive = false; });
  }
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    add([p](Program& q) { q.parameters[p].frozen = false; });
  }
  add([](Program& p) {
    p.type = Type::f64;
    for (Parameter& parameter : p.parameters) parameter.single = false;
  });
  add([](Program& p) { p.autocast.reset(); });
  add([](Program& p) { p.penalty = false; });
  add([](Program& p) { p.way = Way::wrapper; });
  add([](Program& p) { p.small_buckets = false; });
  add([](Program& p) { p.dim = 0; });
  add([](Program& p) { p.at_least = 1; });
  add([](Program& p) { p.scalars = Scalars::each; });
  add([](Program& p) { p.buffers = Buffers::first; });
  add([](Program& p) { p.output_device = p.devices[0]; });
  if (program.splitting != Splitting::sizes) {
    add([](Program& p) {
      p.splitting = Splitting::chunk;
      p.chunks.clear();
    });
  }
  std::erase_if(result, [&](const Program& p) { return describe(p) == describe(program); });
  return result;
}

}  // namespace shrinking

// The smallest program found of which `fails` is true, as it is of `program`.
inline Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (Program& candidate : shrinking::smaller(program)) {
      if (!fails(candidate)) continue;
      program = std::move(candidate);
      shrunk = true;
      break;
    }
  }
  return program;
}

}  // namespace lockstep::testing::programs
