// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/row_loops.hpp>
#include <lockstep/tensor/device_random.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

// Attention on the host: the scores of a block of queries and a block of keys at a time (Dao and
// others, "FlashAttention", 2022; in the order of FlashAttention-2's forward). A block stays in the
// second-level cache from the product that makes it to the one that uses it up; forward keeps two
// numbers for each query, and backward computes the blocks again.
namespace lockstep::detail {

// What both passes know of the operands. `batch` are the dimensions before the last two.
struct AttentionGeometry {
  Shape batch;
  std::int64_t queries, keys, size, value_size;
  double scale;
  bool causal;
  double dropout_p;
  RandomRange random;  // of dropout: a number for each query and key of each head

  static constexpr std::int64_t kQueries = 64;
  static constexpr std::int64_t kKeys = 256;

  std::int64_t heads() const { return numel(batch); }
  std::int64_t block_rows() const { return std::min(kQueries, queries); }
  std::int64_t block_size() const { return block_rows() * std::min(kKeys, keys); }
  // How many elements the transpose of [keys, size] has, where it is made: see TransposedMatrix.
  std::int64_t transposed(std::int64_t columns) const {
    return queries > kQueries ? keys * columns : 0;
  }
  // How many keys any of the queries before `end` sees.
  std::int64_t seen(std::int64_t end) const { return causal ? std::min(keys, end) : keys; }
};

// The matrices of an operand, one a head: `row` elements from row to row. A matrix has contiguous
// rows, but a mask may have any strides.
template <class T>
struct HeadMatrices {
  View<T> all;
  Shape strides;  // of the batch
  std::int64_t row = 0;
  std::int64_t column = 1;

  T* of(const Shape& batch, std::int64_t head) const {
    if (all.data == nullptr) return nullptr;
    std::int64_t at = 0;
    for (std::size_t d = batch.size(); d-- > 0; head /= batch[d]) {
      at += head % batch[d] * strides[d];
    }
    return all.data + at;
  }
};

// The transpose of a matrix [keys, size], to be multiplied with from the left. A BLAS takes up to
// twice as long for a product with a transposed operand, so where several blocks of queries need it
// it is made once.
template <class T>
class TransposedMatrix {
 public:
  // `room` has space for it, or no memory.
  TransposedMatrix(const T* matrix, std::int64_t row, std::int64_t keys, std::int64_t size,
                   const View<T>& room)
      : data_(matrix), row_(row), size_(size), made_(room.size > 0) {
    if (!made_) return;
    constexpr std::int64_t kTile = 16;
    for (std::int64_t first = 0; first < keys; first += kTile) {
      const std::int64_t end = std::min(first + kTile, keys);
      for (std::int64_t c = 0; c < size; ++c) {
        for (std::int64_t r = first; r < end; ++r) room.data[c * keys + r] = matrix[r * row + c];
      }
    }
    data_ = room.data;
    row_ = keys;
  }

  // out[rows, columns] = alpha · left[rows, size] · its columns from j on.
  void multiply(T alpha, const T* left, std::int64_t left_row, std::int64_t rows, std::int64_t j,
                std::int64_t columns, T* out) const {
    host_gemm(false, !made_, rows, columns, size_, alpha, left, left_row,
              data_ + (made_ ? j : j * row_), row_, T(0), out, columns);
  }

 private:
  const T* data_;
  std::int64_t row_;
  std::int64_t size_;
  bool made_;
};

// A mask is one of the two, or neither.
template <class T>
struct AttentionMask {
  HeadMatrices<const bool> sees;
  HeadMatrices<const T> bias;
};

// One head's operands, and the scores of a block of them.
template <class T>
struct AttentionHead {
  const AttentionGeometry& g;
  std::int64_t number;
  const T* q;
  const T* k;
  std::int64_t q_row, k_row;
  TransposedMatrix<T> k_transposed;
  const bool* sees;
  const T* bias;
  const AttentionMask<T>& mask;

  AttentionHead(const AttentionGeometry& geometry, std::int64_t head,
                const HeadMatrices<const T>& query, const HeadMatrices<const T>& key,
                const AttentionMask<T>& masks, const View<T>& room)
      : g(geometry),
        number(head),
        q(query.of(g.batch, head)),
        k(key.of(g.batch, head)),
        q_row(query.row),
        k_row(key.row),
        k_transposed(k, k_row, g.keys, g.size, room),
        sees(masks.sees.of(g.batch, head)),
        bias(masks.bias.of(g.batch, head)),
        mask(masks) {}

  // The scores of `rows` queries from i on and `columns` keys from j on, `columns` from row to row,
  // masks included. Those of keys that come after the query are numbers without meaning.
  void scores(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns,
              T* out) const {
    k_transposed.multiply(static_cast<T>(g.scale), q + i * q_row, q_row, rows, j, columns, out);
    if (sees == nullptr && bias == nullptr) return;
    for (std::int64_t r = 0; r < rows; ++r, out += columns) {
      if (sees != nullptr) {
        const bool* const row = sees + (i + r) * mask.sees.row + j * mask.sees.column;
        for (std::int64_t c = 0; c < columns; ++c) {
          out[c] = row[c * mask.sees.column] ? out[c] : -std::numeric_limits<T>::infinity();
        }
      } else {
        const T* const row = bias + (i + r) * mask.bias.row + j * mask.bias.column;
        for (std::int64_t c = 0; c < columns; ++c) out[c] += row[c * mask.bias.column];
      }
    }
  }

  // How many of the `columns` keys from j on query i sees, but for masks.
  std::int64_t visible(std::int64_t i, std::int64_t j, std::int64_t columns) const {
    return g.causal ? std::clamp<std::int64_t>(i + 1 - j, 0, columns) : columns;
  }

  // What dropout multiplies the weight of each of `count` keys from j on by.
  void keep(std::int64_t i, std::int64_t j, std::int64_t count, T* factors) const {
    const auto threshold = static_cast<std::uint64_t>(g.dropout_p * 0x1p53);
    const T scale = g.dropout_p < 1 ? static_cast<T>(1 / (1 - g.dropout_p)) : T(0);
    const auto first = static_cast<std::size_t>((number * g.queries + i) * g.keys + j);
    for (std::int64_t c = 0; c < count; ++c) {
      factors[c] =
          static_cast<T>(g.random.bits53(first + static_cast<std::size_t>(c)) >= threshold) * scale;
    }
  }
};

template <class T>
struct AttentionForward {
  HeadMatrices<const T> query, key, value;
  AttentionMask<T> mask;
  HeadMatrices<T> out;
  // Of each query shift and factor: exp(score − shift) · factor is a weight. Or no memory.
  View<T> stats;
  View<T> scores;  // work space of g.block_size()
  View<T> keys;    // of g.transposed(g.size)
  AttentionGeometry g;

  void operator()() const {
    for (std::int64_t h = 0; h < g.heads(); ++h) {
      const AttentionHead<T> head(g, h, query, key, mask, keys);
      for (std::int64_t i = 0; i < g.queries; i += AttentionGeometry::kQueries) {
        rows_from(head, i, std::min(AttentionGeometry::kQueries, g.queries - i));
      }
    }
  }

 private:
  // The softmax is carried on from block to block: when a greater score comes, what has been summed
  // up so far shrinks.
  void rows_from(const AttentionHead<T>& head, std::int64_t first, std::int64_t rows) const {
    std::array<T, AttentionGeometry::kQueries> greatest;
    std::array<double, AttentionGeometry::kQueries> total{};
    greatest.fill(-std::numeric_limits<T>::infinity());
    const T* const v = value.of(g.batch, head.number);
    T* const to = out.of(g.batch, head.number) + first * out.row;
    const std::int64_t seen = g.seen(first + rows);
    for (std::int64_t j = 0; j < seen; j += AttentionGeometry::kKeys) {
      const std::int64_t columns = std::min(AttentionGeometry::kKeys, seen - j);
      head.scores(first, rows, j, columns, scores.data);
      for (std::int64_t r = 0; r < rows; ++r) {
        T* const row = scores.data + r * columns;
        const std::int64_t count = head.visible(first + r, j, columns);
        const auto at = static_cast<std::size_t>(r);
        const T before = greatest[at];
        greatest[at] = std::max(before, greatest_of(row, count));
        const T shift = shift_of(greatest[at]);
        exp_minus(row, count, shift);
        std::fill(row + count, row + columns, T(0));
        if (j > 0 && before != greatest[at]) {
          const T shrink = std::exp(before - shift);
          total[at] *= static_cast<double>(shrink);
          scale_row(to + r * out.row, g.value_size, shrink);
        }
        total[at] += sum_of(row, count);
        if (g.dropout_p == 0) continue;
        std::array<T, AttentionGeometry::kKeys> factors;
        head.keep(first + r, j, count, factors.data());
        for (std::int64_t c = 0; c < count; ++c) row[c] *= factors[static_cast<std::size_t>(c)];
      }
      host_gemm(false, false, rows, g.value_size, columns, T(1), static_cast<const T*>(scores.data),
                columns, v + j * value.row, value.row, j == 0 ? T(0) : T(1), to, out.row);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const T factor = total[at] == 0 ? T(0) : static_cast<T>(1 / total[at]);  // 0: it sees no key
      scale_row(to + r * out.row, g.value_size, factor);
      if (stats.data == nullptr) continue;
      T* const kept = stats.data + 2 * (head.number * g.queries + first + r);
      kept[0] = shift_of(greatest[at]);
      kept[1] = factor;
    }
  }

  // A query that has seen nothing yet has no score to subtract.
  static T shift_of(T greatest) {
    return greatest == -std::numeric_limits<T>::infinity() ? T(0) : greatest;
  }
};

// With weights P = exp(S − shift) · factor, thinned out by dropout's D, and out = (P ∘ D) · V:
//   dV = (P ∘ D)ᵀ · dOut,  dS = P ∘ (D ∘ (dOut · Vᵀ) − rowsum(dOut ∘ out)),
//   dQ = scale · dS · K,  dK = scale · dSᵀ · Q.
// `factor` is taken into dOut, which is smaller than P. A gradient without memory is not wanted.
template <class T>
struct AttentionBackward {
  HeadMatrices<const T> query, key, value;
  AttentionMask<T> mask;
  HeadMatrices<const T> out, grad;
  View<const T> stats;
  HeadMatrices<T> query_grad, key_grad, value_grad;
  View<T> scores, slopes;  // work space of g.block_size() each
  View<T> scaled;          // of g.block_rows() · g.value_size
  View<T> keys, values;    // of g.transposed(g.size) and g.transposed(g.value_size)
  AttentionGeometry g;

  void operator()() const {
    for (std::int64_t h = 0; h < g.heads(); ++h) {
      const AttentionHead<T> head(g, h, query, key, mask, keys);
      const TransposedMatrix<T> v(value.of(g.batch, h), value.row, g.keys, g.value_size, values);
      std::int64_t done = 0;  // keys whose gradients have been begun
      for (std::int64_t i = 0; i < g.queries; i += AttentionGeometry::kQueries) {
        const std::int64_t rows = std::min(AttentionGeometry::kQueries, g.queries - i);
        rows_from(head, v, i, rows, done);
        done = g.seen(i + rows);
      }
      clear_from(key_grad, h, g.size, done);
      clear_from(value_grad, h, g.value_size, done);
    }
  }

 private:
  void rows_from(const AttentionHead<T>& head, const TransposedMatrix<T>& v, std::int64_t first,
                 std::int64_t rows, std::int64_t done) const {
    std::array<T, AttentionGeometry::kQueries> means;
    scale_gradients(head.number, first, rows, means.data());
    const T* const from = scaled.data;
    T* const dq = query_grad.of(g.batch, head.number);
    T* const dk = key_grad.of(g.batch, head.number);
    T* const dv = value_grad.of(g.batch, head.number);
    const T scale = static_cast<T>(g.scale);
    const std::int64_t seen = g.seen(first + rows);
    for (std::int64_t j = 0; j < seen; j += AttentionGeometry::kKeys) {
      const std::int64_t columns = std::min(AttentionGeometry::kKeys, seen - j);
      head.scores(first, rows, j, columns, scores.data);
      v.multiply(T(1), from, g.value_size, rows, j, columns, slopes.data);
      for (std::int64_t r = 0; r < rows; ++r) {
        slope_row(head, first + r, j, columns, means[static_cast<std::size_t>(r)],
                  scores.data + r * columns, slopes.data + r * columns);
      }
      const T* const weights = scores.data;
      const T* const slope = slopes.data;
      // The last of the keys done may have been begun within a block.
      const std::int64_t begun = std::clamp<std::int64_t>(done - j, 0, columns);
      const auto add = [&](const T* left, const T* right, std::int64_t row, std::int64_t size,
                           T alpha, T* to, std::int64_t to_row) {
        for (const auto& [at, count, beta] :
             {Part{0, begun, T(1)}, Part{begun, columns - begun, T(0)}}) {
          host_gemm(true, false, count, size, rows, alpha, left + at, columns, right, row, beta,
                    to + (j + at) * to_row, to_row);
        }
      };
      if (dv) add(weights, from, g.value_size, g.value_size, T(1), dv, value_grad.row);
      if (dk) add(slope, head.q + first * head.q_row, head.q_row, g.size, scale, dk, key_grad.row);
      if (dq) {
        host_gemm(false, false, rows, g.size, columns, scale, slope, columns,
                  head.k + j * head.k_row, head.k_row, j == 0 ? T(0) : T(1),
                  dq + first * query_grad.row, query_grad.row);
      }
    }
  }

  struct Part {
    std::int64_t at, count;
    T beta;
  };

  // The gradients of the queries' outputs times `factor`, and their products with the outputs.
  void scale_gradients(std::int64_t head, std::int64_t first, std::int64_t rows, T* means) const {
    const T* const o = out.of(g.batch, head);
    const T* const from = grad.of(g.batch, head);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T factor = stats.data[2 * (head * g.queries + first + r) + 1];
      const T* const row = from + (first + r) * grad.row;
      T* const to = scaled.data + r * g.value_size;
      for (std::int64_t c = 0; c < g.value_size; ++c) to[c] = row[c] * factor;
      means[r] =
          static_cast<T>(dot(static_cast<const T*>(to), o + (first + r) * out.row, g.value_size));
    }
  }

  // Turns the scores of a query into its weights, but for `factor`, and the gradients of the
  // weights into those of the scores.
  void slope_row(const AttentionHead<T>& head, std::int64_t i, std::int64_t j, std::int64_t columns,
                 T mean, T* row, T* slope) const {
    const std::int64_t count = head.visible(i, j, columns);
    exp_minus(row, count, stats.data[2 * (head.number * g.queries + i)]);
    if (g.dropout_p > 0) {
      std::array<T, AttentionGeometry::kKeys> factors;
      head.keep(i, j, count, factors.data());
      for (std::int64_t c = 0; c < count; ++c) {
        const T factor = factors[static_cast<std::size_t>(c)];
        slope[c] = row[c] * (slope[c] * factor - mean);
        row[c] *= factor;
      }
    } else {
      LOCKSTEP_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) slope[c] = row[c] * (slope[c] - mean);
    }
    std::fill(row + count, row + columns, T(0));
    std::fill(slope + count, slope + columns, T(0));
  }

  // Keys that no query sees have no gradient.
  void clear_from(const HeadMatrices<T>& grads, std::int64_t head, std::int64_t size,
                  std::int64_t first) const {
    T* const to = grads.of(g.batch, head);
    for (std::int64_t j = first; to != nullptr && j < g.keys; ++j) {
      std::fill_n(to + j * grads.row, size, T(0));
    }
  }
};

}  // namespace lockstep::detail
