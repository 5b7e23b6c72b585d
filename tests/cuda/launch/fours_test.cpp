// SPDX-License-Identifier: Apache-2.0
#include <cudasim/twins.hpp>

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/kernels/channel_norm.hpp>
#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/kernels/functors.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::cuda {
namespace fours_test {

struct OneMore {
  LOCKSTEP_HD float operator()(float x) const { return x + 1; }
};
struct Sum {
  LOCKSTEP_HD float operator()(float a, float b) const { return a + b; }
};
struct Halved {
  LOCKSTEP_HD double operator()(double x) const { return x / 2; }
};
// Writes how many elements are taken at a time.
struct AtATime {
  View<float> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = 1; }
};

}  // namespace fours_test

template <>
struct Fours<fours_test::AtATime> {
  static bool fit(const fours_test::AtATime& kernel) { return has_fours(kernel.out); }
  LOCKSTEP_HD static void run(const fours_test::AtATime& kernel, std::size_t i) {
    write_four(kernel.out, i, Four<float>{{4, 4, 4, 4}});
  }
};

namespace fours_test {

template <class F>
void run_all_threads(std::size_t threads, std::size_t count, const F& functor) {
  for (std::size_t thread = 0; thread < threads; ++thread) {
    run_thread(thread, threads, count, functor, by_fours(functor));
  }
}

constexpr std::size_t kRoom = 64;
constexpr std::size_t kOffsets[] = {0, 1, 2, 3, 4};
constexpr std::size_t kThreads[] = {1, 2, 3, 8, 64};

// Whatever the number of threads and elements and wherever they lie, each element has its turn, and
// one: the kernel writes where it reads.
TEST(Fours, EachElementHasOneTurn) {
  using Kernel = lockstep::detail::UnaryKernel<float, float, OneMore>;
  static_assert(HasFours<Kernel>);
  alignas(16) float values[kRoom];
  for (const std::size_t offset : kOffsets) {
    for (const std::size_t threads : kThreads) {
      for (std::size_t count = 0; offset + count <= 40; ++count) {
        for (std::size_t i = 0; i < kRoom; ++i) values[i] = static_cast<float>(i);
        const Kernel kernel{{values + offset, count}, {values + offset, count}, {}};
        EXPECT_EQ(by_fours(kernel), offset % 4 == 0);
        run_all_threads(threads, count, kernel);
        for (std::size_t i = 0; i < kRoom; ++i) {
          const bool changed = i >= offset && i < offset + count;
          ASSERT_EQ(values[i], static_cast<float>(i + (changed ? 1 : 0)))
              << i << " of " << count << " from " << offset << " by " << threads;
        }
      }
    }
  }
}

TEST(Fours, EachOperandHasToLieAtSixteenBytes) {
  using Kernel = lockstep::detail::BinaryKernel<float, float, Sum>;
  alignas(16) float a[kRoom];
  alignas(16) float b[kRoom];
  alignas(16) float out[kRoom];
  for (std::size_t i = 0; i < kRoom; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(100 * i);
  }
  for (std::size_t shifted = 0; shifted < 8; ++shifted) {
    const std::size_t of_a = shifted % 2, of_b = shifted / 2 % 2, of_out = shifted / 4;
    const Kernel kernel{{a + of_a, 41}, {b + of_b, 41}, {out + of_out, 41}, {}};
    EXPECT_EQ(by_fours(kernel), shifted == 0);
    run_all_threads(5, 41, kernel);
    for (std::size_t i = 0; i < 41; ++i) ASSERT_EQ(out[of_out + i], a[of_a + i] + b[of_b + i]);
  }
}

// Elements of 2 bytes at a multiple of 8.
TEST(Fours, CastsOfHalfPrecision) {
  using Kernel = lockstep::detail::CastKernel<float, Half>;
  alignas(16) Half in[kRoom];
  for (std::size_t i = 0; i < kRoom; ++i) in[i] = Half(static_cast<float>(i));
  for (const std::size_t offset : kOffsets) {
    alignas(16) float out[kRoom] = {};
    const Kernel kernel{{in + offset, 41}, {out, 41}};
    EXPECT_EQ(by_fours(kernel), offset % 4 == 0);
    run_all_threads(5, 41, kernel);
    for (std::size_t i = 0; i < kRoom; ++i) {
      ASSERT_EQ(out[i], static_cast<float>(i < 41 ? i + offset : 0)) << i;
    }
  }
}

// As a gradient that comes is added to those before it.
TEST(Fours, AddInPlace) {
  using Kernel = lockstep::detail::AddInPlaceKernel<float>;
  alignas(16) float in[kRoom];
  for (std::size_t i = 0; i < kRoom; ++i) in[i] = static_cast<float>(i);
  for (const std::size_t offset : kOffsets) {
    alignas(16) float out[kRoom] = {};
    const Kernel kernel{{out, 41}, {in + offset, 41}, 3};
    EXPECT_EQ(by_fours(kernel), offset % 4 == 0);
    for (int times = 0; times < 2; ++times) run_all_threads(5, 41, kernel);
    for (std::size_t i = 0; i < kRoom; ++i) {
      ASSERT_EQ(out[i], static_cast<float>(i < 41 ? 6 * (i + offset) : 0)) << i;
    }
  }
}

TEST(Fours, OfOneChannel) {
  using Kernel = ChannelElements<lockstep::detail::ChannelAffineCall<float>>;
  alignas(16) float in[kRoom];
  for (std::size_t i = 0; i < kRoom; ++i) in[i] = static_cast<float>(i);
  const float mean[] = {1, 2, 3};
  const float scale[] = {2, 3, 5};
  for (const std::size_t inner : {1U, 2U, 3U, 4U, 6U, 8U}) {
    const std::size_t count = 2 * 3 * inner;
    const lockstep::detail::Axis axis(Shape{2, 3, static_cast<std::int64_t>(inner)}, 1);
    for (const std::size_t offset : kOffsets) {
      alignas(16) float out[kRoom] = {};
      const Kernel kernel{{{in, count}, {mean, 3}, {scale, 3}, {}, {out + offset, count}, axis}};
      EXPECT_EQ(by_fours(kernel), inner % 4 == 0 && offset % 4 == 0);
      run_all_threads(5, count, kernel);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t c = i / inner % 3;
        ASSERT_EQ(out[offset + i], (in[i] - mean[c]) * scale[c]) << i << " of " << inner;
      }
    }
  }
}

TEST(Fours, OfFourBytesAtMost) {
  EXPECT_TRUE((HasFours<lockstep::detail::UnaryKernel<float, bool, OneMore>>));
  EXPECT_FALSE((HasFours<lockstep::detail::UnaryKernel<double, double, Halved>>));
  EXPECT_FALSE(HasFours<OneMore>);
}

// As tests of operations on simulated GPUs run them.
TEST(Fours, SimulatedGpusTakeThem) {
  fill_slots(Kernels<AtATime>{});
  cudasim::twins::register_kernels(Kernels<AtATime>{});
  const Tensor out = empty({7}, {.device = "cuda:0"});
  const Stream stream = current_stream(out.device());
  launch(stream, 7, AtATime{lockstep::detail::output<float>(out, stream)});
  EXPECT_EQ(out.to("cpu").to_vector<float>(), (std::vector<float>{4, 4, 4, 4, 1, 1, 1}));
}

}  // namespace fours_test
}  // namespace lockstep::cuda
