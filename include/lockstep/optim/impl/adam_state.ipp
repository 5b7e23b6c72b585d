// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/optim/adam_state.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::optim {

LOCKSTEP_INLINE void check_betas(const char* optimizer, const std::pair<double, double>& betas) {
  check_setting(optimizer, "the first beta", betas.first);
  check_setting(optimizer, "the second beta", betas.second);
  check<ValueError>(betas.first < 1 && betas.second < 1, optimizer,
                    ": expected betas below 1, got ", betas.first, " and ", betas.second);
}

LOCKSTEP_INLINE void list_state(StateDict& dict, const std::string& prefix,
                                const AdamState& state) {
  if (!state.mean.defined()) return;
  dict.push_back(detail::named_number(prefix + "step", state.steps));
  dict.push_back({prefix + "exp_avg", state.mean});
  dict.push_back({prefix + "exp_avg_sq", state.square});
}

LOCKSTEP_INLINE AdamState read_state(detail::StateReader& reader, const std::string& prefix,
                                     const Tensor& parameter, const AdamState& /*like*/) {
  AdamState state;
  state.steps = reader.count(prefix + "step");
  state.mean = reader.copy(prefix + "exp_avg", parameter);
  state.square = reader.copy(prefix + "exp_avg_sq", parameter);
  return state;
}

}  // namespace lockstep::optim
