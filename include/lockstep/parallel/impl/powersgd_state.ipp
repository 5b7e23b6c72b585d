// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/powersgd_state.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::ddp_comm_hooks {

LOCKSTEP_INLINE PowerSGDState::CompressionStats PowerSGDState::compression_stats() const {
  const double rate = after_ > 0 ? static_cast<double>(before_) / static_cast<double>(after_) : 0;
  return {rate, before_, after_};
}

LOCKSTEP_INLINE std::pair<std::int64_t, std::int64_t> PowerSGDState::matrix_of(
    const Tensor& gradient) {
  const std::int64_t rows = gradient.dim() > 0 ? gradient.size(0) : 1;
  return {rows, rows > 0 ? gradient.numel() / rows : 0};
}

LOCKSTEP_INLINE PowerSGDState::Memory& PowerSGDState::memory_of(const Tensor& parameter) {
  return memory_.try_emplace(parameter.impl().get(), Memory{parameter}).first->second;
}

LOCKSTEP_INLINE void PowerSGDState::count(std::int64_t before, std::int64_t after) {
  before_ += before;
  after_ += after;
}

LOCKSTEP_INLINE const PowerSGDOptions& PowerSGDState::checked(const PowerSGDOptions& options) {
  at_least("matrix_approximation_rank", std::int64_t{1}, options.matrix_approximation_rank);
  at_least("start_powerSGD_iter", std::int64_t{0}, options.start_powerSGD_iter);
  at_least("min_compression_rate", 0.0, options.min_compression_rate);
  at_least("orthogonalization_epsilon", 0.0, options.orthogonalization_epsilon);
  return options;
}

LOCKSTEP_INLINE std::string PowerSGDState::name_of(std::size_t parameter, const char* what) {
  return lockstep::detail::str("state.", parameter, '.', what);
}

}  // namespace lockstep::ddp_comm_hooks
