// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// Gradients against central finite differences, in f64.
namespace lockstep::testing {

struct GradcheckOptions {
  double step = 1e-6;
  double atol = 1e-6;
  double rtol = 1e-5;
};

namespace detail {

inline std::vector<Tensor> as_list(Tensor tensor) { return {std::move(tensor)}; }
inline std::vector<Tensor> as_list(std::vector<Tensor> tensors) { return tensors; }

// `function` takes the tensors as a vector, or one by one.
template <class F>
std::vector<Tensor> call(const F& function, const std::vector<Tensor>& x) {
  using T = const Tensor&;
  if constexpr (std::invocable<const F&, const std::vector<Tensor>&>) {
    return as_list(function(x));
  } else if constexpr (std::invocable<const F&, T>) {
    return as_list(function(x.at(0)));
  } else if constexpr (std::invocable<const F&, T, T>) {
    return as_list(function(x.at(0), x.at(1)));
  } else {
    static_assert(std::invocable<const F&, T, T, T>, "takes a vector or one to three tensors");
    return as_list(function(x.at(0), x.at(1), x.at(2)));
  }
}

// Numbers in [0.5, 1.5) without pattern, the same on every machine.
inline Tensor weights(const Tensor& like, std::size_t number) {
  std::vector<double> values(static_cast<std::size_t>(like.numel()));
  std::uint64_t state = 88172645463325252U + number;
  for (double& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = 0.5 + static_cast<double>(state >> 11) * 0x1p-53;
  }
  return from_values(values, like.sizes(), like.device());
}

// The same values with a gap behind each element.
inline Tensor scattered(const Tensor& tensor) {
  Shape shape = tensor.sizes();
  shape.push_back(2);
  const Tensor room = zeros(shape, tensor.options());
  Shape strides = room.strides();
  strides.erase(strides.size() - 1);
  const Tensor view = lockstep::detail::make_view(room, tensor.sizes(), strides, 0);
  lockstep::detail::copy_into(view, tensor);
  return view;
}

inline Tensor leaf(const std::vector<double>& values, const Tensor& like, bool requires_grad) {
  return from_values(values, like.sizes(), like.device()).requires_grad_(requires_grad);
}

// Σ wₖ · yₖ over all outputs that carry gradients, computed on the host in the order of elements.
template <class F>
double weighted(const F& function, const std::vector<Tensor>& x,
                const std::vector<Tensor>& output_weights) {
  const NoGradGuard guard;
  const std::vector<Tensor> y = call(function, x);
  long double total = 0;
  for (std::size_t k = 0; k < y.size(); ++k) {
    if (!output_weights[k].defined()) continue;
    const std::vector<double> values = y[k].to_vector<double>();
    const std::vector<double> factors = output_weights[k].to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      total += static_cast<long double>(values[i]) * static_cast<long double>(factors[i]);
    }
  }
  return static_cast<double>(total);
}

}  // namespace detail

// Succeeds if the gradient of every f64 input that requires grad agrees with finite differences;
// otherwise says which element of which input is off most.
//
// All outputs are weighted with fixed numbers and summed, and the gradient of that sum is checked;
// the outputs' gradients are also passed scattered in memory, and twice, for the same bits, and
// each gradient is also asked for alone. Inputs that do not require grad, labels for instance, are
// passed as they are. Stay away from kinks.
//
// **Torch counterpart.** torch.autograd.gradcheck with fast_mode.
template <class F>
::testing::AssertionResult gradcheck(const F& function, const std::vector<Tensor>& inputs,
                                     const GradcheckOptions& options = {}) {
  std::vector<Tensor> x;
  std::vector<Tensor> wanted;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) {
      x.push_back(inputs[i]);
      continue;
    }
    if (inputs[i].dtype() != Dtype::f64) {
      return ::testing::AssertionFailure()
             << "input " << i << " is of " << inputs[i].dtype() << "; finite differences need f64";
    }
    x.push_back(detail::leaf(inputs[i].to_vector<double>(), inputs[i], true));
    wanted.push_back(x.back());
    numbers.push_back(i);
  }
  if (wanted.empty()) return ::testing::AssertionFailure() << "no input requires grad";

  const std::vector<Tensor> y = detail::call(function, x);
  std::vector<Tensor> output_weights(y.size());
  std::vector<Tensor> roots;
  std::vector<Tensor> root_weights;
  for (std::size_t k = 0; k < y.size(); ++k) {
    if (!y[k].requires_grad()) continue;
    output_weights[k] = detail::weights(y[k], k);
    roots.push_back(y[k]);
    root_weights.push_back(output_weights[k]);
  }
  if (roots.empty()) return ::testing::AssertionFailure() << "no output requires grad";

  const auto gradients = [&](const std::vector<Tensor>& given) {
    return autograd::grad(roots, wanted, given, true, false, true);
  };
  const std::vector<Tensor> first = gradients(root_weights);
  const std::vector<Tensor> second = gradients(root_weights);
  std::vector<Tensor> gaps;
  for (const Tensor& tensor : root_weights) gaps.push_back(detail::scattered(tensor));
  const std::vector<Tensor> third = gradients(gaps);
  const auto alone = [&](std::size_t i) -> Tensor {
    std::vector<Tensor> at = x;
    for (const std::size_t number : numbers) {
      if (number != numbers[i]) at[number] = x[number].detach();
    }
    const std::vector<Tensor> outputs = detail::call(function, at);
    std::vector<Tensor> some;
    std::vector<Tensor> weights;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].requires_grad()) continue;
      some.push_back(outputs[k]);
      weights.push_back(output_weights[k]);
    }
    if (some.empty()) return {};
    return autograd::grad(some, {wanted[i]}, weights, false, false, true)[0];
  };

  double worst = 0;
  ::testing::AssertionResult failure = ::testing::AssertionFailure();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::vector<double> values = wanted[i].to_vector<double>();
    std::vector<double> analytic(values.size(), 0.0);
    if (first[i].defined()) {
      if (first[i].sizes() != wanted[i].sizes() || first[i].device() != wanted[i].device()) {
        return ::testing::AssertionFailure()
               << "the gradient of input " << numbers[i] << " is of shape " << first[i].sizes()
               << " on " << first[i].device() << ", the input of shape " << wanted[i].sizes()
               << " on " << wanted[i].device();
      }
      analytic = first[i].to_vector<double>();
      if (analytic != second[i].to_vector<double>()) {
        return ::testing::AssertionFailure()
               << "the gradient of input " << numbers[i] << " differs from run to run";
      }
    }
    const auto values_or_zeros = [&values](const Tensor& gradient) {
      return gradient.defined() ? gradient.to_vector<double>()
                                : std::vector<double>(values.size(), 0.0);
    };
    struct Way {
      std::vector<double> gradient;
      const char* what;
    };
    const Way ways[] = {
        {analytic, ""},
        {values_or_zeros(third[i]), ", where the output's gradient is not contiguous"},
        {values_or_zeros(alone(i)), ", where no other is wanted"},
    };
    for (std::size_t e = 0; e < values.size(); ++e) {
      std::vector<double> moved = values;
      std::vector<Tensor> at = x;
      // What was added is not quite `step` once it is rounded.
      moved[e] = values[e] + options.step;
      const double above = moved[e];
      at[numbers[i]] = detail::leaf(moved, wanted[i], false);
      const double upper = detail::weighted(function, at, output_weights);
      moved[e] = values[e] - options.step;
      const double below = moved[e];
      at[numbers[i]] = detail::leaf(moved, wanted[i], false);
      const double lower = detail::weighted(function, at, output_weights);
      const double numeric = (upper - lower) / (above - below);
      for (const Way& way : ways) {
        const double found = way.gradient[e];
        const double allowed = options.atol + options.rtol * std::abs(numeric);
        const double excess = std::abs(found - numeric) / allowed;
        if (std::isnan(excess) || excess > std::max(worst, 1.0)) {
          worst = std::isnan(excess) ? HUGE_VAL : excess;
          failure = ::testing::AssertionFailure()
                    << "input " << numbers[i] << " of shape " << wanted[i].sizes() << ", element "
                    << e << ": the gradient is " << found << ", finite differences give " << numeric
                    << " (" << excess << " times the tolerance" << way.what << ')';
        }
      }
    }
  }
  return worst > 1.0 ? failure : ::testing::AssertionSuccess();
}

// Checks the second derivatives: gradcheck of the gradient, as a function of the inputs and of the
// gradient that backward starts from. The gradient also has to be the same whether it is recorded
// or not.
//
// **Torch counterpart.** torch.autograd.gradgradcheck.
template <class F>
::testing::AssertionResult gradgradcheck(const F& function, const std::vector<Tensor>& inputs,
                                         const GradcheckOptions& options = {}) {
  std::vector<Tensor> all = inputs;
  std::vector<bool> differentiable;
  for (const Tensor& tensor : detail::call(function, inputs)) {
    differentiable.push_back(tensor.requires_grad());
    if (!differentiable.back()) continue;
    all.push_back(detail::weights(tensor, all.size()).requires_grad_());
  }
  const std::size_t count = inputs.size();
  const auto gradient = [&, count](const std::vector<Tensor>& x, bool recorded = true) {
    // Finite differences are taken without recording, but the gradient itself needs a graph.
    const GradModeGuard guard(true);
    std::vector<Tensor> own(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<Tensor> wanted;
    for (std::size_t i = 0; i < count; ++i) {
      if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
      if (!own[i].requires_grad()) own[i].requires_grad_();
      wanted.push_back(own[i]);
    }
    const std::vector<Tensor> y = detail::call(function, own);
    std::vector<Tensor> roots;
    for (std::size_t k = 0; k < y.size(); ++k) {
      if (differentiable[k]) roots.push_back(y[k]);
    }
    const std::vector<Tensor> given(x.begin() + static_cast<std::ptrdiff_t>(count), x.end());
    std::vector<Tensor> grads = autograd::grad(roots, wanted, given, true, recorded, true);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) grads[i] = zeros_like(wanted[i]);
    }
    return grads;
  };
  const std::vector<Tensor> recorded = gradient(all);
  const std::vector<Tensor> plain = gradient(all, false);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const std::vector<double> values = recorded[i].to_vector<double>();
    const std::vector<double> expected = plain[i].to_vector<double>();
    for (std::size_t e = 0; e < expected.size(); ++e) {
      const double allowed = options.atol + options.rtol * std::abs(expected[e]);
      if (std::abs(values[e] - expected[e]) <= allowed) continue;
      return ::testing::AssertionFailure()
             << "gradient " << i << ", of shape " << plain[i].sizes() << ", element " << e << ": "
             << values[e] << " if it is recorded, else " << expected[e];
    }
  }
  return gradcheck(gradient, all, options);
}

}  // namespace lockstep::testing
