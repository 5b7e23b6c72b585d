// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::testing {

// Values in [−1, 1) without pattern, the same everywhere; those of one tensor differ by 1/1000 at
// least as long as there are at most 2003 of them.
template <class T = double>
Tensor varied(const Shape& shape, std::size_t seed = 0, Device device = Device("cpu:0")) {
  std::vector<T> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<T>(static_cast<double>((i * 857 + seed * 389 + 77) % 2003) / 1001.5 - 1);
  }
  return from_values(values, shape, device);
}

// The same, as a leaf that wants a gradient.
template <class T = double>
Tensor varied_leaf(const Shape& shape, std::size_t seed = 0, Device device = Device("cpu:0")) {
  return varied<T>(shape, seed, device).requires_grad_();
}

inline ::testing::AssertionResult all_close(const Tensor& a, const Tensor& b, double rtol = 1e-5,
                                            double atol = 1e-8) {
  if (a.sizes() != b.sizes()) {
    return ::testing::AssertionFailure() << "shapes " << a.sizes() << " and " << b.sizes();
  }
  const auto values = [](const Tensor& t) {
    if (t.dtype() == Dtype::f64) return t.to_vector<double>();
    const std::vector<float> floats = t.to_vector<float>();
    return std::vector<double>(floats.begin(), floats.end());
  };
  const std::vector<double> x = values(a);
  const std::vector<double> y = values(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] > y[i] ? x[i] - y[i] : y[i] - x[i];
    const double size = y[i] < 0 ? -y[i] : y[i];
    // What is within some part of an infinity is any number, and the other infinity.
    const bool close = std::isfinite(y[i]) && difference <= atol + rtol * size;
    if (!close && x[i] != y[i]) {
      return ::testing::AssertionFailure() << "element " << i << " is " << x[i] << " and " << y[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Runs `body` and expects an E whose message holds every one of `parts`.
template <class E, class F>
void expect_error(const F& body, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const E& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
    }
  }
}

}  // namespace lockstep::testing
