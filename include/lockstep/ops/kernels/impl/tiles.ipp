// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/tiles.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::detail::tiles {

#if defined(__x86_64__)

using Floats8 [[gnu::vector_size(32)]] = float;

// A loop whose arrays become registers. nvcc does not know the pragma; what it compiles is slower.
#if defined(__CUDACC__)
#define LOCKSTEP_UNROLLED(I, COUNT) for (int I = 0; I < (COUNT); ++(I))
#else
#define LOCKSTEP_UNROLLED(I, COUNT) _Pragma("GCC unroll 16") for (int I = 0; I < (COUNT); ++(I))
#endif

#define LOCKSTEP_EACH <lockstep/ops/kernels/impl/tiles.inc>
#include <lockstep/ops/kernels/impl/for_each_instructions.inc>

// As many sums as there are registers for.
template <int rows>
Kernel kernel(std::int64_t columns, vectorized::Instructions by) {
  constexpr int few = rows == 7 ? 2 : 3;
  if (by == vectorized::Instructions::avx2) return {by_avx2::add_tile<rows, few, 1>, rows, few, 8};
  if ((columns + 15) / 16 % 2 == 0) return {by_avx512::add_tile<rows, few, 2>, rows, few, 32};
  return {by_avx512::add_tile<rows, 2 * few, 1>, rows, 2 * few, 16};
}

// Exchanges the elements of x whose number has the bit `step` with those of y that are without it.
#define LOCKSTEP_LANES(PICK) PICK(0), PICK(1), PICK(2), PICK(3), PICK(4), PICK(5), PICK(6), PICK(7)
#define LOCKSTEP_LOW(I) (((I)&step) != 0 ? (I)-step + 8 : (I))
#define LOCKSTEP_HIGH(I) (((I)&step) != 0 ? (I) + 8 : (I) + step)
template <int step>
[[gnu::target("avx2,fma")]] inline void exchange(Floats8 (&rows)[8]) {
  LOCKSTEP_UNROLLED(i, 8) {
    if ((i & step) != 0) continue;
    const Floats8 x = rows[i];
    const Floats8 y = rows[i + step];
    rows[i] = __builtin_shufflevector(x, y, LOCKSTEP_LANES(LOCKSTEP_LOW));
    rows[i + step] = __builtin_shufflevector(x, y, LOCKSTEP_LANES(LOCKSTEP_HIGH));
  }
}
#undef LOCKSTEP_LANES
#undef LOCKSTEP_LOW
#undef LOCKSTEP_HIGH

// A block of 8 × 8.
[[gnu::target("avx2,fma")]] inline void transpose_block(const float* in, std::int64_t in_ld,
                                                        float* out, std::int64_t out_ld) {
  Floats8 rows[8];
  LOCKSTEP_UNROLLED(i, 8) std::memcpy(&rows[i], in + i * in_ld, sizeof(Floats8));
  exchange<4>(rows);
  exchange<2>(rows);
  exchange<1>(rows);
  LOCKSTEP_UNROLLED(i, 8) std::memcpy(out + i * out_ld, &rows[i], sizeof(Floats8));
}
#undef LOCKSTEP_UNROLLED

LOCKSTEP_INLINE Kernel Kernel::fit(std::int64_t row_run, std::int64_t columns,
                                   vectorized::Instructions by) {
  if (by < vectorized::Instructions::avx2) return {};
  Kernel best;
  double used = 0.67;
  for (const Kernel& k : {kernel<7>(columns, by), kernel<4>(columns, by)}) {
    if (k.rows > row_run) continue;
    const double here =
        static_cast<double>(row_run * columns) /
        static_cast<double>(k.parts(row_run) * k.rows * k.panels(columns) * k.width);
    if (here > used) {
      used = here;
      best = k;
    }
  }
  return best;
}

LOCKSTEP_INLINE ProductKernel ProductKernel::best(vectorized::Instructions by) {
  if (by < vectorized::Instructions::avx2) return {};
  if (by == vectorized::Instructions::avx2) return {by_avx2::multiply_tile<kRows, 2>, 16};
  return {by_avx512::multiply_tile<kRows, 4>, 64};
}

LOCKSTEP_INLINE void transpose(const float* in, std::int64_t in_ld, std::int64_t rows,
                               std::int64_t columns, float* out, std::int64_t out_ld) {
  if (rows < 8 || columns < 8) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) out[c * out_ld + r] = in[r * in_ld + c];
    }
    return;
  }
  for (std::int64_t c = 0; c < columns; c += 8) {  // the last blocks overlap those before
    const std::int64_t column = std::min(c, columns - 8);
    for (std::int64_t r = 0; r < rows; r += 8) {
      const std::int64_t row = std::min(r, rows - 8);
      transpose_block(in + row * in_ld + column, in_ld, out + column * out_ld + row, out_ld);
    }
  }
}

#else

LOCKSTEP_INLINE Kernel Kernel::fit(std::int64_t, std::int64_t, vectorized::Instructions) {
  return {};
}
LOCKSTEP_INLINE ProductKernel ProductKernel::best(vectorized::Instructions) { return {}; }
LOCKSTEP_INLINE void transpose(const float*, std::int64_t, std::int64_t, std::int64_t, float*,
                               std::int64_t) {}

#endif

}  // namespace lockstep::detail::tiles
