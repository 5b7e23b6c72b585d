// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace softmax_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

TEST(Softmax, IsTheShareOfTheExponentials) {
  const Tensor x = tensor<double>({0, std::log(2.0), std::log(5.0)});
  EXPECT_TRUE(all_close(softmax(x, 0), tensor<double>({0.125, 0.25, 0.625}), 1e-14));
  EXPECT_TRUE(all_close(log_softmax(x, -1),
                        tensor<double>({std::log(0.125), std::log(0.25), std::log(0.625)}), 1e-14));
}

TEST(Softmax, GoesAlongAnyDimension) {
  const Tensor x = varied({2, 3, 4});
  for (std::int64_t dim = -3; dim < 3; ++dim) {
    const Tensor y = softmax(x, dim);
    EXPECT_EQ(y.sizes(), x.sizes());
    EXPECT_TRUE(all_close(exp(log_softmax(x, dim)), y, 1e-13));
    const Tensor total = sum(y, {dim});
    EXPECT_TRUE(all_close(total, ones(total.sizes(), total.options()), 1e-14)) << dim;
  }
  EXPECT_EQ(softmax(scalar_tensor(3.0), 0).item<double>(), 1);
  EXPECT_EQ(log_softmax(scalar_tensor(3.0), -1).item<double>(), 0);
  EXPECT_EQ(softmax(varied({0, 3}), 1).sizes(), (Shape{0, 3}));
  EXPECT_EQ(softmax(varied({3, 0}), 1).sizes(), (Shape{3, 0}));
}

TEST(Softmax, DoesNotOverflow) {
  const Tensor x = tensor<float>({1e30F, 1e30F, -1e30F});
  EXPECT_EQ(softmax(x, 0).to_vector<float>(), (std::vector<float>{0.5F, 0.5F, 0}));
  const std::vector<float> logs = log_softmax(tensor<float>({0, -1000}), 0).to_vector<float>();
  EXPECT_EQ(logs, (std::vector<float>{0, -1000}));
  // The logarithm of the sum is small beside the greatest, and must not vanish in it.
  const float big = 16777216;
  EXPECT_FLOAT_EQ(log_softmax(tensor<float>({big, big}), 0).to_vector<float>()[0], -std::log(2.0F));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : softmax(tensor<float>({1, nan, 2}), 0).to_vector<float>()) {
    EXPECT_TRUE(std::isnan(value));
  }
  // The same of columns, side by side; one has nothing but minus infinity.
  const float none = -std::numeric_limits<float>::infinity();
  const Tensor columns = from_values<float>(
      {1e30F, 0, big, 1, none, 1e30F, -1000, big, nan, none, -1e30F, none, none, 2, none}, {3, 5});
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const std::vector<double> shares =
        softmax(columns.to(dtype), 0).to(Dtype::f64).to_vector<double>();
    const std::vector<double> log_shares =
        log_softmax(columns.to(dtype), 0).to(Dtype::f64).to_vector<double>();
    for (const std::size_t at : {3U, 4U, 8U, 9U, 13U, 14U}) {
      EXPECT_TRUE(std::isnan(shares[at]) && std::isnan(log_shares[at])) << at;
    }
    for (const std::size_t at : {0U, 2U, 5U, 7U}) EXPECT_EQ(shares[at], 0.5) << at;
    for (const std::size_t at : {6U, 10U, 11U, 12U}) EXPECT_EQ(shares[at], 0) << at;
    EXPECT_EQ(log_shares[6], -1000);
    EXPECT_NEAR(log_shares[2], -std::log(2.0), 1e-7);
  }
}

// A host device takes long rows in blocks of 64 and groups of 8; short ones, and those that lie
// scattered, in other ways. Some elements are hidden, as by a mask, and some are far below the
// rest.
TEST(Softmax, RowsOfAnyLengthAreWhatTheirFormulasSay) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::int64_t length : {1, 7, 16, 17, 64, 72, 100, 131}) {
    std::vector<double> x = varied({2, length}).to_vector<double>();
    for (std::size_t i = 1; i < x.size(); i += 5) x[i] = i % 2 == 0 ? -infinity : -700;
    std::vector<double> y(x.size());
    std::vector<double> logs(x.size());
    const auto row = static_cast<std::size_t>(length);
    for (std::size_t first = 0; first < x.size(); first += row) {
      double sum = 0;
      for (std::size_t i = first; i < first + row; ++i) sum += std::exp(x[i]);
      for (std::size_t i = first; i < first + row; ++i) {
        y[i] = std::exp(x[i]) / sum;
        logs[i] = x[i] - std::log(sum);
      }
    }
    const Shape shape{2, length};
    const Tensor in = from_values(x, shape);
    const Tensor scattered = in.t().contiguous();
    for (const Tensor& found : {softmax(in, 1), softmax(scattered, 0).t()}) {
      EXPECT_TRUE(all_close(found, from_values(y, shape), 1e-13, 1e-300)) << length;
    }
    for (const Tensor& found : {log_softmax(in, 1), log_softmax(scattered, 0).t()}) {
      EXPECT_TRUE(all_close(found, from_values(logs, shape), 1e-13, 1e-13)) << length;
    }
    EXPECT_TRUE(all_close(softmax(in.to(Dtype::f32), 1), from_values(y, shape), 1e-6, 1e-30));
  }
}

TEST(Softmax, LongRowsHaveFirstDerivatives) {
  for (const std::int64_t dim : {0, 1}) {
    const std::vector<Tensor> x = {varied_leaf(dim == 0 ? Shape{75, 2} : Shape{2, 72})};
    EXPECT_TRUE(gradcheck([=](const Tensor& at) { return softmax(at, dim); }, x));
    EXPECT_TRUE(gradcheck([=](const Tensor& at) { return log_softmax(at, dim); }, x));
  }
}

template <class T>
void expect_columns_as_rows(const Shape& shape) {
  // A GPU rounds columns and rows each in its way.
  const bool rounds = std::is_same_v<T, float> && !Device("cpu:0").is_cpu();
  const double close = rounds ? 1e-4 : 1e-5;
  for (const bool log : {false, true}) {
    const auto along = [log](const Tensor& at, std::int64_t dim) {
      return log ? log_softmax(at, dim) : softmax(at, dim);
    };
    const Tensor columns = varied_leaf<T>(shape);
    const Tensor rows = columns.detach().transpose(1, 2).contiguous().requires_grad_();
    const Tensor y = along(columns, 1);
    const Tensor of_rows = along(rows, 2);
    EXPECT_TRUE(all_close(y, of_rows.transpose(1, 2), close)) << shape << ", log " << log;
    const Tensor above = varied<T>(shape, 1);
    y.backward(above);
    of_rows.backward(above.transpose(1, 2));
    // Where grad and exp(y) · Σ grad are nearly equal, rounding may be all that is left.
    const double left = rounds && log ? 1e-6 : 1e-8;
    EXPECT_TRUE(all_close(columns.grad(), rows.grad().transpose(1, 2), close, left))
        << shape << ", log " << log;
  }
}

// The host takes some columns at a time: here as many as there are and fewer, long and short ones.
TEST(Softmax, ColumnsAreAsRows) {
  for (const Shape& shape : {Shape{2, 3, 1500}, Shape{2, 40, 119}, Shape{3, 2500, 2}}) {
    expect_columns_as_rows<float>(shape);
    expect_columns_as_rows<double>(shape);
  }
}

// A GPU takes rows of 1024 elements and more in another way.
TEST(Softmax, TheGradientsOfRowsOfAnyLengthAreWhatTheirFormulasSay) {
  for (const std::int64_t length : {1, 31, 300, 1023, 1024, 2500}) {
    const Shape shape{3, length};
    const auto row = static_cast<std::size_t>(length);
    const std::vector<double> g = varied(shape, 1).to_vector<double>();
    for (const bool log : {false, true}) {
      const Tensor x = varied_leaf(shape);
      (log ? log_softmax(x, 1) : softmax(x, 1)).backward(varied(shape, 1));
      const std::vector<double> y = softmax(x.detach(), 1).to_vector<double>();
      std::vector<double> expected(y.size());
      for (std::size_t first = 0; first < y.size(); first += row) {
        double total = 0;
        for (std::size_t i = first; i < first + row; ++i) total += log ? g[i] : g[i] * y[i];
        for (std::size_t i = first; i < first + row; ++i) {
          expected[i] = log ? g[i] - y[i] * total : y[i] * (g[i] - total);
        }
      }
      EXPECT_TRUE(all_close(x.grad(), from_values(expected, shape), 1e-10, 1e-13))
          << length << ", log " << log;
    }
  }
}

TEST(Softmax, HasFirstAndSecondDerivatives) {
  for (const std::int64_t dim : {0, 1, 2}) {
    const auto f = [=](const Tensor& x) { return softmax(x, dim); };
    const auto g = [=](const Tensor& x) { return log_softmax(x, dim); };
    const std::vector<Tensor> x = {varied_leaf({2, 3, 2})};
    EXPECT_TRUE(gradcheck(f, x));
    EXPECT_TRUE(gradgradcheck(f, x));
    EXPECT_TRUE(gradcheck(g, x));
    EXPECT_TRUE(gradgradcheck(g, x));
  }
}

TEST(Softmax, RefusesWhatItCannotTake) {
  expect_error<IndexError>([] { softmax(varied({2, 3}), 2); }, {"Dimension out of range", "2"});
  expect_error<DtypeError>([] { softmax(arange(3), 0); }, {"softmax", "i64"});
}

}  // namespace softmax_test
}  // namespace lockstep
