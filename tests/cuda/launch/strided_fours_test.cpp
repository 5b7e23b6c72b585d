// SPDX-License-Identifier: Apache-2.0
#include <cudasim/twins.hpp>

#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/walk.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

// Kernels whose operands are strided: by fours they do what they do element by element.
namespace lockstep::cuda {
namespace strided_fours_test {

using lockstep::detail::Moved;

struct Minus {
  LOCKSTEP_HD float operator()(float a, float b) const { return a - b; }
};

template <class F>
void run_all_threads(std::size_t count, const F& functor) {
  for (std::size_t thread = 0; thread < 3; ++thread)
    run_thread(thread, 3, count, functor, by_fours(functor));
}

template <class F>
void run_each(std::size_t count, const F& functor) {
  for (std::size_t i = 0; i < count; ++i) functor(i);
}

// Memory for so many numbers, which begins so many of them behind a multiple of the size of four.
template <class T>
struct NumbersOf {
  NumbersOf(std::size_t count, std::size_t offset, T first)
      : fours((count + offset + 3) / 4), data(fours.data()->of + offset) {
    std::iota(data, data + count, first);
  }
  std::vector<Four<T>> fours;
  T* data;
};
using Numbers = NumbersOf<float>;

struct Case {
  Shape sizes;
  std::array<Shape, 2> strides;
  bool by_fours;  // where all memory begins at a multiple of 16 bytes
};

std::size_t room_for(const Shape& sizes, const Shape& strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return static_cast<std::size_t>(last) + 1;
}

TEST(StridedFours, BroadcastOperands) {
  using Kernel = BroadcastKernel<float, float, Minus>;
  static_assert(HasFours<Kernel>);
  const std::vector<Case> cases = {
      {{3, 8}, {{{8, 1}, {0, 1}}}, true},
      {{3, 8}, {{{8, 1}, {1, 0}}}, true},
      {{3, 8}, {{{1, 0}, {0, 1}}}, true},
      {{3, 6}, {{{6, 1}, {0, 1}}}, false},
      {{3, 8}, {{{9, 1}, {0, 1}}}, false},
      {{3, 8}, {{{1, 3}, {8, 1}}}, false},
      {{3, 8}, {{{12, 1}, {0, 1}}}, true},
      {{2, 3, 4}, {{{12, 4, 1}, {4, 0, 1}}}, true},
      {{2, 3, 8}, {{{24, 8, 1}, {0, 1, 0}}}, true},
      {{2, 3, 6}, {{{18, 6, 1}, {0, 1, 0}}}, false},
      {{8}, {{{1}, {0}}}, true},
      {{1}, {{{1}, {1}}}, false},
      {{2, 8}, {{{16, 2}, {0, 1}}}, false},
  };
  for (std::size_t number = 0; number < cases.size(); ++number) {
    const Case& each = cases[number];
    const auto count = static_cast<std::size_t>(numel(each.sizes));
    for (std::size_t shifted = 0; shifted < 8; ++shifted) {
      const std::size_t room_a = room_for(each.sizes, each.strides[0]);
      const std::size_t room_b = room_for(each.sizes, each.strides[1]);
      const Numbers a(room_a, shifted % 2, 1);
      const Numbers b(room_b, shifted / 2 % 2, 1000);
      const Numbers out(count, shifted / 4, 0);
      const Numbers expected(count, 0, 0);
      const auto walk = lockstep::detail::make_walk<2>(each.sizes, each.strides);
      Kernel kernel{{a.data, room_a}, {b.data, room_b}, {out.data, count}, strided_index(walk), {}};
      if (shifted == 0) {
        EXPECT_EQ(by_fours(kernel), each.by_fours) << "case " << number;
      }
      run_all_threads(count, kernel);
      kernel.out.data = expected.data;
      run_each(count, kernel);
      ASSERT_TRUE(std::equal(out.data, out.data + count, expected.data))
          << "case " << number << ", shifted " << shifted;
    }
  }
}

// As a convolution's bias is added.
TEST(StridedFours, ABroadcastOperandIsAddedInPlace) {
  const Shape images{2, 3, 8};
  const auto walk =
      lockstep::detail::make_walk<2>(images, {contiguous_strides(images), Shape{0, 1, 0}});
  const auto count = static_cast<std::size_t>(numel(images));
  for (std::size_t shifted = 0; shifted < 2; ++shifted) {
    const Numbers sums(count, shifted, 1);
    const Numbers bias(3, 0, 100);
    const BroadcastKernel<float, float, lockstep::detail::Plus<float>> kernel{
        {sums.data, count}, {bias.data, 3}, {sums.data, count}, strided_index(walk), {}};
    EXPECT_EQ(by_fours(kernel), shifted == 0);
    run_all_threads(count, kernel);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sums.data[i], static_cast<float>(1 + i + 100 + i / 8 % 3)) << i;
    }
  }
}

template <class T>
void expect_copies() {
  using Element = Moved<sizeof(T)>;
  static_assert(HasFours<StridedCopyElements<Element>>);
  const std::vector<Case> cases = {
      {{3, 8}, {{{0, 1}, {8, 1}}}, true},           {{3, 8}, {{{1, 0}, {8, 1}}}, true},
      {{3, 8}, {{{12, 1}, {8, 1}}}, true},          {{3, 8}, {{{8, 1}, {12, 1}}}, true},
      {{3, 8}, {{{1, 3}, {8, 1}}}, false},          {{3, 8}, {{{8, 1}, {1, 3}}}, false},
      {{3, 6}, {{{0, 1}, {6, 1}}}, false},          {{3, 8}, {{{8, 1}, {9, 1}}}, false},
      {{2, 3, 4}, {{{4, 0, 1}, {12, 4, 1}}}, true},
  };
  for (std::size_t number = 0; number < cases.size(); ++number) {
    const Case& each = cases[number];
    const auto count = static_cast<std::size_t>(numel(each.sizes));
    for (std::size_t shifted = 0; shifted < 4; ++shifted) {
      const std::size_t room_in = room_for(each.sizes, each.strides[0]);
      const std::size_t room_out = room_for(each.sizes, each.strides[1]);
      const NumbersOf<T> in(room_in, shifted % 2, 1);
      const NumbersOf<T> out(room_out, shifted / 2, 1000);
      const NumbersOf<T> expected(room_out, 0, 1000);
      const auto walk = lockstep::detail::make_walk<2>(each.sizes, each.strides);
      StridedCopyElements<Element> kernel{{reinterpret_cast<const Element*>(in.data), room_in},
                                          {reinterpret_cast<Element*>(out.data), room_out},
                                          strided_index(walk)};
      if (shifted == 0) {
        EXPECT_EQ(by_fours(kernel), each.by_fours) << "case " << number;
      }
      run_all_threads(count, kernel);
      kernel.out.data = reinterpret_cast<Element*>(expected.data);
      run_each(count, kernel);
      ASSERT_TRUE(std::equal(out.data, out.data + room_out, expected.data))
          << "case " << number << ", shifted " << shifted;
    }
  }
}

TEST(StridedFours, Copies) {
  expect_copies<float>();
  expect_copies<std::uint16_t>();
  static_assert(!HasFours<StridedCopyElements<Moved<8>>>);
}

}  // namespace strided_fours_test
}  // namespace lockstep::cuda
