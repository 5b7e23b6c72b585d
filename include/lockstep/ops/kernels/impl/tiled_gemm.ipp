// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/kernels/tiles.hpp>

#include <algorithm>
#include <cstdint>

namespace lockstep::detail {

// The rows of a as columns of so many floats: of a power of two few would have a place in the
// cache.
inline std::int64_t column_step(const Gemm<float>& gemm) { return gemm.m + 16; }

LOCKSTEP_INLINE std::int64_t TiledGemm::work_size(const Gemm<float>& gemm) {
  const tiles::Kernel kernel = tiles::Kernel::fit(gemm.m, gemm.n);
  const bool fits = kernel.run != nullptr && gemm.m % kernel.rows == 0 &&
                    gemm.n % kernel.width == 0 && !gemm.trans_a && gemm.batch == 1 &&
                    host_math_threads() == 1;
  return fits ? gemm.k * gemm.n + gemm.n + gemm.k * column_step(gemm) : 0;
}

LOCKSTEP_INLINE void TiledGemm::operator()() const {
  const auto& g = gemm;
  const tiles::Kernel kernel = tiles::Kernel::fit(g.m, g.n);
  float* const bias = work.data + g.k * g.n;
  float* const columns = bias + g.n;
  if (writes_panels) {
    std::fill_n(bias, g.n, 0.0F);
    if (g.bias.data != nullptr) std::copy_n(g.bias.data, g.n, bias);
  } else {
    tiles::transpose(g.a.data, g.lda, g.m, g.k, columns, column_step(g));
  }
  for (std::int64_t j = 0; j < g.n; j += kernel.width) {
    float* const panel = work.data + j * g.k;
    if (writes_panels) {
      if (g.trans_b) {
        tiles::transpose(g.b.data + j * g.ldb, g.ldb, kernel.width, g.k, panel, kernel.width);
        continue;
      }
      for (std::int64_t p = 0; p < g.k; ++p) {
        std::copy_n(g.b.data + p * g.ldb + j, kernel.width, panel + p * kernel.width);
      }
      continue;
    }
    constexpr tiles::Terms all{0, 0};
    const tiles::Sum sum{.terms = &all,
                         .count = 1,
                         .length = g.k,
                         .step = column_step(g),
                         .panel = panel,
                         .initial = g.beta == 0 || g.bias.data != nullptr ? bias + j : nullptr,
                         .out_step = g.ldc};
    tiles::Segment segments[tiles::Kernel::kMostSegments];
    const std::int64_t tile = kernel.segments * kernel.rows;
    for (std::int64_t i = 0; i < g.m; i += tile) {
      const std::int64_t end = std::min(i + tile, g.m);
      for (std::int64_t r = i; r < end; r += kernel.rows) {
        segments[(r - i) / kernel.rows] = {columns + r, g.c.data + r * g.ldc + j};
      }
      kernel(sum, segments, (end - i) / kernel.rows);
    }
  }
}

}  // namespace lockstep::detail
