// SPDX-License-Identifier: Apache-2.0

// The kernels of rows with the lanes that a GPU gives them. Each lane is a thread here, and lanes
// meet as those of a GPU do: a warp at a shuffle, a block at __syncthreads. So this file compiles
// what a GPU runs of lanes.hpp, under another name, since elsewhere in the program a lane is alone.
#include <gtest/gtest.h>

#include <lockstep/backend/host_device.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kWarp = 32;
constexpr std::size_t kBlock = 256;

// The lanes of one row.
class Meeting {
 public:
  explicit Meeting(std::size_t lanes) : block_(static_cast<std::ptrdiff_t>(lanes)) {
    for (std::size_t done = 0; done < lanes; done += kWarp) {
      warps_.push_back(std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(kWarp)));
    }
  }

  void wait_for_block() { block_.arrive_and_wait(); }

  template <class T>
  T value_of(std::size_t other, std::size_t self, T value) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::barrier<>& warp = *warps_[self / kWarp];
    std::memcpy(&values_[self], &value, sizeof value);
    warp.arrive_and_wait();
    std::memcpy(&value, &values_[other], sizeof value);
    warp.arrive_and_wait();
    return value;
  }

 private:
  std::barrier<> block_;
  std::vector<std::unique_ptr<std::barrier<>>> warps_;
  std::array<std::uint64_t, kBlock> values_{};
};

thread_local Meeting* meeting = nullptr;
thread_local std::size_t lane = 0;

template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned step) {
  return meeting->value_of(lane ^ step, lane, value);
}
[[maybe_unused]] void __syncthreads() { meeting->wait_for_block(); }

}  // namespace

#define Lanes LanesThatMeet
#define __shared__ static
#define __CUDA_ARCH__ 900
#include <lockstep/cuda/launch/lanes.hpp>
#undef __CUDA_ARCH__
#undef __shared__
#include <cudasim/twins.hpp>

#include <lockstep/cuda/kernels/index.hpp>
#include <lockstep/cuda/kernels/layer_norm.hpp>
#include <lockstep/cuda/kernels/loss.hpp>
#include <lockstep/cuda/kernels/reduce.hpp>
#include <lockstep/cuda/kernels/softmax.hpp>
#include <lockstep/cuda/kernels/sums.hpp>

namespace lockstep::cuda {
namespace lanes_test {

using lockstep::detail::Axis;
using Numbers = std::vector<double>;

constexpr std::size_t kRows = 2;

template <class Kernel>
void run_row(const Kernel& kernel, std::size_t row, unsigned lanes) {
  Meeting of_row(lanes);
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < lanes; ++index) {
    threads.emplace_back([&, index] {
      meeting = &of_row;
      lane = index;
      kernel(row, Lanes{index, lanes});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What kernel_of(out) gives is what one lane gives, by a warp and by a block.
template <class Out = double, class KernelOf>
void expect_as_alone(std::size_t size, const KernelOf& kernel_of, std::size_t rows = kRows) {
  std::vector<Out> alone(size);
  const auto kernel = kernel_of(View<Out>{alone.data(), size});
  for (std::size_t row = 0; row < rows; ++row) kernel(row, Lanes{});
  for (const std::size_t lanes : {kWarp, kBlock}) {
    std::vector<Out> together(size);
    const auto same = kernel_of(View<Out>{together.data(), size});
    for (std::size_t row = 0; row < rows; ++row) run_row(same, row, static_cast<unsigned>(lanes));
    for (std::size_t i = 0; i < size; ++i) {
      const auto expected = static_cast<double>(alone[i]);
      ASSERT_NEAR(static_cast<double>(together[i]), expected, 1e-12 * (1 + std::abs(expected)))
          << i << " of " << size << " by " << lanes;
    }
  }
}

Numbers numbers(std::size_t count, double first = 0.1) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(first + 1.7 * static_cast<double>(i));
  }
  return values;
}
View<const double> view(const Numbers& values) { return {values.data(), values.size()}; }

Axis rows_of(std::size_t columns) {
  return Axis(Shape{static_cast<std::int64_t>(kRows), static_cast<std::int64_t>(columns)}, 1);
}

// Fewer columns than lanes, as many, and more than each lane reads at a time.
class RowsByLanes : public testing::TestWithParam<std::size_t> {
 protected:
  std::size_t columns() const { return GetParam(); }
  std::size_t all() const { return kRows * columns(); }
};
INSTANTIATE_TEST_SUITE_P(Columns, RowsByLanes, testing::Values(1, 33, 2500));

TEST_P(RowsByLanes, Softmax) {
  const Numbers in = numbers(all());
  for (const bool log : {false, true}) {
    expect_as_alone(all(), [&](View<double> out) {
      return SoftmaxRows<double>{view(in), out, rows_of(columns()), log, false};
    });
  }
}

TEST_P(RowsByLanes, SoftmaxGradient) {
  const Numbers grad = numbers(all());
  const Numbers y = numbers(all(), 0.7);
  expect_as_alone(all(), [&](View<double> out) {
    return SoftmaxGradRows<double, true>{{view(grad), view(y), out, rows_of(columns())}, false};
  });
}

TEST_P(RowsByLanes, ClassLoss) {
  const Numbers in = numbers(all());
  const std::int64_t labels[kRows] = {static_cast<std::int64_t>(columns()) - 1, 0};
  Numbers probs(all());
  IndexFault fault;
  expect_as_alone(kRows, [&](View<double> out) {
    return ClassLossRows<double>{{view(in),
                                  {labels, kRows},
                                  {probs.data(), probs.size()},
                                  {},
                                  rows_of(columns()),
                                  Reduction::none,
                                  true},
                                 out,
                                 {&fault, 1},
                                 false};
  });
}

TEST_P(RowsByLanes, LayerNorm) {
  const Numbers in = numbers(all());
  const Numbers weight = numbers(columns(), 0.3);
  expect_as_alone(all() + 2 * kRows, [&](View<double> out) {
    const View<double> statistics{out.data + all(), 2 * kRows};
    return LayerNormRows<double>{
        {view(in), view(weight), {}, {out.data, all()}, statistics, columns(), 1e-5}};
  });
}

TEST_P(RowsByLanes, LayerNormGradient) {
  const Numbers grad = numbers(all());
  const Numbers in = numbers(all(), 0.7);
  const Numbers statistics{0.1, 0.2, 1.5, 2.5};
  expect_as_alone(2 * all(), [&](View<double> out) {
    return LayerNormGradRows<double>{
        {view(grad), view(in), {}, view(statistics), {out.data, all()}, {}, {}, columns()},
        {out.data + all(), all()}};
  });
}

// Of equal ones the first; a NaN before all others.
TEST_P(RowsByLanes, Argmax) {
  for (const double greatest : {2.0, std::numeric_limits<double>::quiet_NaN()}) {
    Numbers in = numbers(all());
    for (std::size_t i = columns() / 3; i < all(); i += 37) in[i] = greatest;
    expect_as_alone<std::int64_t>(kRows, [&](View<std::int64_t> out) {
      return ArgmaxKernel<double>{{view(in), out, rows_of(columns())}, false};
    });
  }
}

// Along one dimension, two and three.
TEST_P(RowsByLanes, Sum) {
  const Numbers in = numbers(12 * all());
  const StridedIndex<1> kept{1, {kRows}, {{static_cast<std::int64_t>(12 * columns())}}};
  const auto step = static_cast<std::int64_t>(columns());
  const StridedIndex<1> reduced[] = {{1, {12 * columns()}, {{1}}},
                                     {2, {columns(), 12}, {{1, step}}},
                                     {3, {3, columns(), 4}, {{4 * step, 1, step}}}};
  for (const auto& index : reduced) {
    expect_as_alone(kRows, [&](View<double> out) {
      return SumKernel<ValueTerm<double>>{
          {view(in)}, {}, out, kept, index, false, kRows, 12 * columns(), 12 * columns(), 1};
    });
  }
}

TEST_P(RowsByLanes, SumOfParts) {
  const Numbers parts = numbers(all());
  expect_as_alone(kRows, [&](View<double> out) {
    return SumPartsKernel<double, double>{view(parts), out, kRows, columns(), 2};
  });
}

// Of a table with so many columns; in two parts, of which the second is shorter.
TEST_P(RowsByLanes, SumOfRowsThatIndicesName) {
  constexpr std::size_t kIndices = 150;
  const Numbers grad = numbers(kIndices * columns());
  std::vector<std::int64_t> indices(kIndices);
  for (std::size_t i = 0; i < kIndices; ++i) {
    indices[i] = static_cast<std::int64_t>(i * i % 7 % kRows);
  }
  expect_as_alone(
      2 * all(),
      [&](View<double> out) {
        return SumRowsKernel<double>{
            view(grad), {indices.data(), kIndices}, out, kRows, columns(), 100, -1};
      },
      2 * kRows);
}

}  // namespace lanes_test
}  // namespace lockstep::cuda
