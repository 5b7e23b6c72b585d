// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::optim {

// What Adam and its kin keep of a parameter: all of it or, before the first step, nothing.
struct AdamState {
  Tensor mean = {};
  Tensor square = {};
  std::int64_t steps = 0;
};

void check_betas(const char* optimizer, const std::pair<double, double>& betas);

// What GroupedOptimizer asks for.
void list_state(StateDict& dict, const std::string& prefix, const AdamState& state);
AdamState read_state(detail::StateReader& reader, const std::string& prefix,
                     const Tensor& parameter, const AdamState& like);

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/adam_state.ipp>
#endif
