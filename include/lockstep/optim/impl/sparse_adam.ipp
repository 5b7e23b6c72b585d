// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/sparse_adam.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void check_options(const char* optimizer, const SparseAdamOptions& options) {
  check_setting(optimizer, "lr", options.lr);
  check_betas(optimizer, options.betas);
  check_setting(optimizer, "eps", options.eps);
}

LOCKSTEP_INLINE SparseAdam::SparseAdam(const ParameterList& parameters,
                                       const SparseAdamOptions& options)
    : GroupedOptimizer("SparseAdam", parameters, options) {}

LOCKSTEP_INLINE SparseAdam::SparseAdam(const std::vector<SparseAdamGroup>& groups,
                                       const SparseAdamOptions& defaults)
    : GroupedOptimizer("SparseAdam", groups, defaults) {}

LOCKSTEP_INLINE void SparseAdam::step() {
  check_all_options();
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor gradient = parameters()[i].grad();
    if (!gradient.defined() || gradient.is_sparse()) continue;
    detail::fail<ValueError>(
        name(), " does not support dense gradients, please consider Adam instead: that of ",
        describe(i), ", of shape ", parameters()[i].sizes(), ", is dense");
  }
  update_each(
      [this](std::size_t group, std::size_t i, const Tensor& parameter, const Tensor& gradient,
             const Stream& stream) {
        AdamState& own = state(i);
        follow(own.mean, i, parameter, stream);
        follow(own.square, i, parameter, stream);
        const auto steps = static_cast<double>(own.steps + 1);
        const SparseAdamOptions& of = options(group);
        const double beta1 = of.betas.first;
        const double beta2 = of.betas.second;
        const double step_size =
            of.lr * std::sqrt(1 - std::pow(beta2, steps)) / (1 - std::pow(beta1, steps));
        // Adam's kernel on copies of the rows, which are then put back.
        const Tensor indices = gradient.indices();
        const Tensor rows = detail::rows_of(parameter, indices);
        const Tensor means = detail::rows_of(own.mean, indices);
        const Tensor squares = detail::rows_of(own.square, indices);
        dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
          const auto number = [](double value) { return static_cast<T>(value); };
          launch_between_teams<sizeof(T)>(
              stream, static_cast<std::size_t>(rows.numel()),
              detail::AdamKernel<T>{
                  detail::output<T>(rows, stream), detail::output<T>(means, stream),
                  detail::output<T>(squares, stream), detail::input<T>(gradient.values()),
                  number(1), number(0), number(beta1), number(1 - beta1), number(beta2),
                  number(1 - beta2), number(step_size), number(1), number(of.eps)});
        });
        detail::put_rows(parameter, indices, rows);
        detail::put_rows(own.mean, indices, means);
        detail::put_rows(own.square, indices, squares);
        ++own.steps;
      },
      [](std::size_t /*group*/) -> const char* { return nullptr; });
}

}  // namespace lockstep::optim
