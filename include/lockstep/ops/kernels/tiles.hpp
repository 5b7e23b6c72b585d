// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <cstdint>

// Products of matrices whose operands lie where they are, for the kernels of host devices: a tile
// of the result stays in registers while all of its terms are added. In the widest vectors that the
// machine has, whatever the program is compiled for; x86-64 with AVX2 alone.
namespace lockstep::detail::tiles {

// A run of terms of every element of a tile: they begin `rows` after the starts of its segments,
// and `panel` after that of its panel.
struct Terms {
  std::int64_t rows, panel;
};

// What a tile is the sum of. Its rows are segments of so many neighbours in memory; a panel is a
// matrix of [terms, width] whose rows follow each other.
struct Sum {
  const Terms* terms;
  std::int64_t count;   // of runs
  std::int64_t length;  // of a run
  std::int64_t step;    // in the rows, from a term to the next
  const float* panel;
  const float* initial;   // a row that every row begins with; null: with what is at `out`
  std::int64_t out_step;  // from one row of a segment to the next
};

// A segment's first term, and where its first row goes. Segments that are listed twice are computed
// twice.
struct Segment {
  const float* start;
  float* out;
};

// The shapes of a tile for segments of a length and panels of a width; `run` is null if this
// machine has none.
struct Kernel {
  void (*run)(const Sum& sum, const Segment* segments) = nullptr;
  std::int64_t rows = 0;      // of a segment
  std::int64_t segments = 0;  // of a tile, at most kMostSegments
  std::int64_t width = 0;

  static constexpr std::int64_t kMostSegments = 6;

  // The one that wastes least on rows that come in runs of `row_run`, each divided into segments,
  // the last of which may overlap the one before, and on `columns`; none if it is a third of all.
  static Kernel fit(std::int64_t row_run, std::int64_t columns,
                    vectorized::Instructions by = vectorized::best_instructions());

  // The segments of a run, and where one begins.
  std::int64_t parts(std::int64_t row_run) const { return (row_run + rows - 1) / rows; }
  std::int64_t begin(std::int64_t part, std::int64_t row_run) const {
    return part * rows + rows <= row_run ? part * rows : row_run - rows;
  }
  // The panels of a matrix.
  std::int64_t panels(std::int64_t columns) const { return (columns + width - 1) / width; }

  // Runs a tile of the first `count` segments, at least one.
  void operator()(const Sum& sum, Segment (&of)[kMostSegments], std::int64_t count) const {
    for (std::int64_t s = count; s < segments; ++s) of[s] = of[count - 1];
    run(sum, of);
  }
};

// A tile of a product: `rows` rows of an operand that lies anywhere, times a panel.
struct Product {
  const float* rows;
  std::int64_t row, term;  // from one row to the next, and from one term
  const float* panel;
  std::int64_t terms;
  const float* addend;  // what is added to the sums, or null; may be `out`
  std::int64_t addend_row;
  float* out;
  std::int64_t out_row;
};

// How this machine computes it; `run` is null if it does not.
struct ProductKernel {
  void (*run)(const Product& product) = nullptr;
  std::int64_t width = 0;  // of a panel, and of the tile

  static constexpr std::int64_t kRows = 6;
  static constexpr std::int64_t kMostWidth = 64;
  static ProductKernel best(vectorized::Instructions by = vectorized::best_instructions());
};

// out[c · out_ld + r] = in[r · in_ld + c]; the machine must have a Kernel.
void transpose(const float* in, std::int64_t in_ld, std::int64_t rows, std::int64_t columns,
               float* out, std::int64_t out_ld);

}  // namespace lockstep::detail::tiles

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/tiles.ipp>
#endif
