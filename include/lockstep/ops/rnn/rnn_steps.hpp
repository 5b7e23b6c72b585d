// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// The time steps of a recurrent layer, and the products over several steps.
namespace lockstep::detail {

// A contiguous tensor [length, rows, columns] as its time steps.
template <class T>
class Steps {
 public:
  Steps(View<T> all, std::int64_t length)
      : all_(all), each_(all.size / static_cast<std::size_t>(length)) {}

  // `count` steps from number `t` on; empty if the tensor is.
  View<T> operator()(std::int64_t t, std::int64_t count = 1) const {
    if (all_.size == 0) return {};
    return {all_.data + static_cast<std::size_t>(t) * each_,
            static_cast<std::size_t>(count) * each_};
  }

 private:
  View<T> all_;
  std::size_t each_;
};

// The time steps of a sequence, divided into runs. A run's products read its gates soon after they
// were computed, while they are in a near cache, and have as many rows as a block of TiledGemm has
// terms.
struct TimeRuns {
  // The steps from `begin` to `end` in the order of computation; `first` is the earliest in the
  // sequence.
  struct Run {
    std::int64_t begin, end, first;
    std::int64_t count() const { return end - begin; }
  };

  std::int64_t length = 0;
  std::int64_t runs = 1;
  bool reverse = false;  // from the last time step to the first

  TimeRuns() = default;
  // The runs of x [length, batch, features].
  TimeRuns(const Shape& x, bool from_end) : length(x[0]), reverse(from_end) {
    constexpr std::int64_t kRows = 256;
    const std::int64_t batch = std::max<std::int64_t>(x[1], 1);
    const std::int64_t most = std::max<std::int64_t>(kRows / batch, 1);
    runs = (length + most - 1) / most;
  }

  // The time step that is computed as the `step`-th.
  std::int64_t at(std::int64_t step) const { return reverse ? length - 1 - step : step; }

  Run run(std::int64_t i) const {
    const std::int64_t begin = i * length / runs;
    const std::int64_t end = (i + 1) * length / runs;
    return {begin, end, reverse ? at(end - 1) : begin};
  }
  std::int64_t longest() const { return (length + runs - 1) / runs; }
  std::int64_t shortest() const { return length / runs; }
};

// A product of m contiguous rows of k numbers with a matrix or its transpose.
template <class T>
Gemm<T> rows_times(const MatrixArgument& matrix, bool transposed, std::int64_t m, std::int64_t n,
                   std::int64_t k) {
  Gemm<T> product{.a = {},
                  .b = strided_input<T>(matrix.tensor()),
                  .bias = {},
                  .c = {},
                  .m = m,
                  .n = n,
                  .k = k,
                  .lda = std::max<std::int64_t>(k, 1),
                  .ldb = matrix.ld,
                  .ldc = std::max<std::int64_t>(n, 1)};
  product.trans_b = transposed != matrix.transposed;
  return product;
}

// Adds the product of transposed gates and what they were computed from, `rows` of each, to the
// gradient of the weights; if `begins`, overwrites it.
template <class T>
void add_weight_gradient(const Stream& stream, const Tensor& gradient, View<const T> gates,
                         View<const T> from, std::int64_t rows, bool begins) {
  const std::int64_t m = gradient.sizes()[0];
  const std::int64_t n = gradient.sizes()[1];
  Gemm<T> product{.a = gates,
                  .b = from,
                  .bias = {},
                  .c = output<T>(gradient, stream),
                  .m = m,
                  .n = n,
                  .k = rows,
                  .lda = std::max<std::int64_t>(m, 1),
                  .ldb = std::max<std::int64_t>(n, 1),
                  .ldc = std::max<std::int64_t>(n, 1)};
  product.trans_a = true;
  product.beta = begins ? 0 : 1;
  launch_gemm(stream, product);
}

}  // namespace lockstep::detail
