// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/kernels/tiles.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::detail {

inline constexpr std::int64_t kTermsOfBlock = 256;
inline constexpr std::int64_t kColumnsOfBlock = 512;
inline constexpr std::int64_t kRowsWrittenOut = 16 * tiles::ProductKernel::kRows;

LOCKSTEP_INLINE std::int64_t TiledGemm::work_size(const Gemm<float>& gemm, Part part) {
  const tiles::ProductKernel kernel = tiles::ProductKernel::best();
  if (kernel.run == nullptr || gemm.alpha != 1 || (gemm.beta != 0 && gemm.beta != 1) ||
      gemm.batch != 1 || gemm.k == 0 || host_math_threads() != 1) {
    return 0;
  }
  const std::int64_t columns = (gemm.n + kernel.width - 1) / kernel.width * kernel.width;
  if (gemm.m < 2 * kernel.kRows || columns * 32 > gemm.n * 33) return 0;
  if (part != Part::all) return gemm.trans_a ? 0 : gemm.k * columns;
  if (vectorized::best_instructions() < vectorized::Instructions::avx512) return 0;
  const std::int64_t terms = std::min(gemm.k, kTermsOfBlock);
  return terms * (std::min(columns, kColumnsOfBlock) + (gemm.trans_a ? kRowsWrittenOut : 0));
}

// A block of b: so many rows and columns from there on.
struct GemmBlock {
  std::int64_t term, terms, column, columns;
};

inline void write_gemm_panels(const Gemm<float>& gemm, const GemmBlock& block, float* panels) {
  const std::int64_t width = tiles::ProductKernel::best().width;
  for (std::int64_t j = 0; j < block.columns; j += width, panels += width * block.terms) {
    const std::int64_t column = block.column + j;
    const std::int64_t count = std::min(width, block.columns - j);
    if (count < width) std::fill_n(panels, width * block.terms, 0.0F);
    if (gemm.trans_b) {
      tiles::transpose(gemm.b.data + column * gemm.ldb + block.term, gemm.ldb, count, block.terms,
                       panels, width);
      continue;
    }
    for (std::int64_t t = 0; t < block.terms; ++t) {
      std::copy_n(gemm.b.data + (block.term + t) * gemm.ldb + column, count, panels + t * width);
    }
  }
}

// The tiles of the rows from `first` on. The last begin before, and where a tile hangs over an edge
// it is computed aside.
inline void multiply_gemm_rows(const Gemm<float>& gemm, const GemmBlock& block, const float* panels,
                               tiles::Product tile, std::int64_t first) {
  const tiles::ProductKernel kernel = tiles::ProductKernel::best();
  const std::int64_t rows = std::min(gemm.m - first, kernel.kRows);
  const bool begins = block.term == 0;
  const bool with_bias = begins && gemm.bias.data != nullptr;
  const bool adds = !begins || with_bias || gemm.beta != 0;
  tile.addend_row = with_bias ? 0 : gemm.ldc;
  tile.out_row = gemm.ldc;
  tile.panel = panels;
  for (std::int64_t j = 0; j < block.columns; j += kernel.width) {
    const std::int64_t column = block.column + j;
    const std::int64_t columns = std::min(block.columns - j, kernel.width);
    tile.out = gemm.c.data + first * gemm.ldc + column;
    tile.addend = with_bias ? gemm.bias.data + column : adds ? tile.out : nullptr;
    if (rows == kernel.kRows && columns == kernel.width) {
      kernel.run(tile);
    } else {
      float sums[tiles::ProductKernel::kRows * tiles::ProductKernel::kMostWidth];
      tiles::Product aside = tile;
      aside.addend = nullptr;
      aside.out = sums;
      aside.out_row = kernel.width;
      kernel.run(aside);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const from = sums + (kernel.kRows - rows + r) * kernel.width;
        for (std::int64_t c = 0; c < columns; ++c) {
          const float more = adds ? tile.addend[r * tile.addend_row + c] : 0;
          tile.out[r * gemm.ldc + c] = from[c] + more;
        }
      }
    }
    tile.panel += kernel.width * block.terms;
  }
}

// Columns of a are no neighbours, and are written out for some tiles at a time. (`rows` has room
// for them.)
inline void multiply_gemm_block(const Gemm<float>& gemm, const GemmBlock& block,
                                const float* panels, float* rows) {
  constexpr std::int64_t kRows = tiles::ProductKernel::kRows;
  const auto start = [&](std::int64_t i) { return std::min(i, gemm.m - kRows); };
  tiles::Product tile{};
  tile.terms = block.terms;
  if (!gemm.trans_a) {
    tile.row = gemm.lda;
    tile.term = 1;
    for (std::int64_t i = 0; i < gemm.m; i += kRows) {
      tile.rows = gemm.a.data + start(i) * gemm.lda + block.term;
      multiply_gemm_rows(gemm, block, panels, tile, i);
    }
    return;
  }
  tile.row = 1;
  tile.term = kRows;
  for (std::int64_t group = 0; group < gemm.m; group += kRowsWrittenOut) {
    const std::int64_t end = std::min(group + kRowsWrittenOut, gemm.m);
    for (std::int64_t t = 0; t < block.terms; ++t) {
      const float* const from = gemm.a.data + (block.term + t) * gemm.lda;
      float* to = rows + t * kRows;
      for (std::int64_t i = group; i < end; i += kRows, to += kRows * block.terms) {
        std::memcpy(to, from + start(i), kRows * sizeof(float));
      }
    }
    tile.rows = rows;
    for (std::int64_t i = group; i < end; i += kRows, tile.rows += kRows * block.terms) {
      multiply_gemm_rows(gemm, block, panels, tile, i);
    }
  }
}

LOCKSTEP_INLINE void TiledGemm::operator()() const {
  const std::int64_t width = tiles::ProductKernel::best().width;
  for (std::int64_t column = 0; column < gemm.n; column += kColumnsOfBlock) {
    const std::int64_t columns = std::min(gemm.n - column, kColumnsOfBlock);
    const std::int64_t padded = (columns + width - 1) / width * width;
    for (std::int64_t term = 0; term < gemm.k; term += kTermsOfBlock) {
      const GemmBlock block{term, std::min(gemm.k - term, kTermsOfBlock), column, columns};
      float* const panels = work.data + (part == Part::all ? 0 : column * gemm.k + term * padded);
      if (part != Part::product) write_gemm_panels(gemm, block, panels);
      if (part != Part::panels)
        multiply_gemm_block(gemm, block, panels, panels + block.terms * padded);
    }
  }
}

}  // namespace lockstep::detail
