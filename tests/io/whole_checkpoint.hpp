// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/random.hpp>

#include "io/training.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

// Everything that a checkpoint can have; `variant` decides all of it.
inline io::Checkpoint whole_checkpoint(int variant) {
  SmallNet net;
  set_parameters(net, variant);
  to(net, "cpu:1");
  optim::SGD sgd{parameters(net), {.lr = 0.1, .momentum = 0.9}};
  manual_seed(static_cast<std::uint64_t>(variant));
  return {.model = state_dict(net),
          .optimizer = sgd.state_dict(),
          .random = io::random_state(),
          .epoch = variant,
          .metadata = {{"written by", "a test"}}};
}

// A file has the tensors in an order of its own.
inline std::map<std::string, std::vector<double>> by_name(const StateDict& dict) {
  std::map<std::string, std::vector<double>> values;
  for (const NamedTensor& entry : dict) {
    values[entry.name] = entry.tensor.to(Dtype::f64).to_vector<double>();
  }
  return values;
}

inline bool same(const io::Checkpoint& a, const io::Checkpoint& b) {
  return by_name(a.model) == by_name(b.model) && by_name(a.optimizer) == by_name(b.optimizer) &&
         by_name(a.random) == by_name(b.random) && a.epoch == b.epoch && a.metadata == b.metadata;
}

}  // namespace lockstep::testing
