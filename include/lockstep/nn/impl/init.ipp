// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>

namespace lockstep::detail {

// Copies `values` into the tensor; throws if it must not be changed in place.
inline const Tensor& overwrite(const char* operation, const Tensor& tensor, const Tensor& values) {
  const NoGradGuard guard;
  check_changeable(tensor, operation);
  copy_into(tensor, values);
  return tensor;
}

template <class Draw>
const Tensor& fill_with(const char* operation, const Tensor& tensor, Generator& generator,
                        Draw draw) {
  check<DtypeError>(is_floating_point(tensor.dtype()), operation,
                    ": expected a tensor of floating-point dtype, got ", tensor.dtype());
  const Tensor values = empty(tensor.sizes(), {.dtype = Dtype::f64});
  auto* const data = values.mutable_data_ptr<double>();
  with_random_bits(generator, tensor.device(), [&](RandomBits bits) {
    for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = draw(bits);
  });
  return overwrite(operation, tensor, values);
}

// Kaiming's deviation: gain / √fan (He et al., 2015, equations 10 and 14).
inline double kaiming_std(const Tensor& tensor, double a, nn::init::FanMode mode,
                          nn::init::Nonlinearity nonlinearity) {
  const auto [fan_in, fan_out] = nn::init::calculate_fan_in_and_fan_out(tensor);
  const auto fan = static_cast<double>(mode == nn::init::FanMode::fan_in ? fan_in : fan_out);
  return tensor.numel() == 0 ? 0 : nn::init::calculate_gain(nonlinearity, a) / std::sqrt(fan);
}

// Xavier's deviation: gain · √(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010, equation 12).
inline double xavier_std(const Tensor& tensor, double gain) {
  const auto [fan_in, fan_out] = nn::init::calculate_fan_in_and_fan_out(tensor);
  return tensor.numel() == 0 ? 0 : gain * std::sqrt(2 / static_cast<double>(fan_in + fan_out));
}

// The half width of the uniform distribution around zero that has this deviation.
inline double uniform_bound(double std) { return std::sqrt(3.0) * std; }

}  // namespace lockstep::detail

namespace lockstep::nn::init {

LOCKSTEP_INLINE FanInAndFanOut calculate_fan_in_and_fan_out(const Tensor& tensor) {
  check<ValueError>(tensor.dim() >= 2,
                    "calculate_fan_in_and_fan_out: expected a weight of at least 2 dimensions, got "
                    "shape ",
                    tensor.sizes());
  std::int64_t receptive_field = 1;
  for (std::int64_t d = 2; d < tensor.dim(); ++d) receptive_field *= tensor.size(d);
  return {tensor.size(1) * receptive_field, tensor.size(0) * receptive_field};
}

LOCKSTEP_INLINE double calculate_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      return 1;
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
  }
  throw ValueError("calculate_gain: a nonlinearity outside the enumeration");
}

LOCKSTEP_INLINE const Tensor& uniform_(const Tensor& tensor, double a, double b,
                                       Generator& generator) {
  if (tensor.defined() && is_floating_point(tensor.dtype())) {
    detail::check_uniform("uniform_", a, b, tensor.dtype());
  }
  return detail::fill_with("uniform_", tensor, generator, [&](detail::RandomBits bits) {
    return detail::uniform_in(a, b, tensor.dtype(), bits);
  });
}

LOCKSTEP_INLINE const Tensor& normal_(const Tensor& tensor, double mean, double std,
                                      Generator& generator) {
  check<ValueError>(detail::is_finite(mean) && detail::is_finite(std) && std >= 0,
                    "normal_: expected a finite mean and a finite deviation of at least 0, got ",
                    mean, " and ", std);
  return detail::fill_with("normal_", tensor, generator, [&](detail::RandomBits bits) {
    return mean + std * detail::normal_of(bits);
  });
}

LOCKSTEP_INLINE const Tensor& zeros_(const Tensor& tensor) {
  return detail::overwrite("zeros_", tensor, zeros(tensor.sizes(), tensor.options()));
}

LOCKSTEP_INLINE const Tensor& ones_(const Tensor& tensor) {
  return detail::overwrite("ones_", tensor, ones(tensor.sizes(), tensor.options()));
}

LOCKSTEP_INLINE const Tensor& kaiming_uniform_(const Tensor& tensor, double a, FanMode mode,
                                               Nonlinearity nonlinearity, Generator& generator) {
  const double bound = detail::uniform_bound(detail::kaiming_std(tensor, a, mode, nonlinearity));
  return uniform_(tensor, -bound, bound, generator);
}

LOCKSTEP_INLINE const Tensor& kaiming_normal_(const Tensor& tensor, double a, FanMode mode,
                                              Nonlinearity nonlinearity, Generator& generator) {
  return normal_(tensor, 0, detail::kaiming_std(tensor, a, mode, nonlinearity), generator);
}

LOCKSTEP_INLINE const Tensor& xavier_uniform_(const Tensor& tensor, double gain,
                                              Generator& generator) {
  const double bound = detail::uniform_bound(detail::xavier_std(tensor, gain));
  return uniform_(tensor, -bound, bound, generator);
}

LOCKSTEP_INLINE const Tensor& xavier_normal_(const Tensor& tensor, double gain,
                                             Generator& generator) {
  return normal_(tensor, 0, detail::xavier_std(tensor, gain), generator);
}

}  // namespace lockstep::nn::init
