// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/program.hpp"
#include "parallel/programs/tape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

// What the outputs, gradients, parameters and buffers of a program have to be: formulas in plain
// loops over plain numbers, of one chunk after the other. Shares no code with the library.
namespace lockstep::testing::programs {

// What the library has to refuse.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Array {
  Sizes sizes;  // with the rows
  std::vector<Number> elements;

  explicit Array(Sizes shape = {0})
      : sizes(std::move(shape)), elements(static_cast<std::size_t>(count(sizes))) {}

  std::int64_t size(std::int64_t d) const {
    return sizes[static_cast<std::size_t>(d < 0 ? d + rank() : d)];
  }
  std::int64_t rank() const { return static_cast<std::int64_t>(sizes.size()); }
  Number& operator[](std::int64_t i) { return elements[static_cast<std::size_t>(i)]; }
  const Number& operator[](std::int64_t i) const { return elements[static_cast<std::size_t>(i)]; }
  std::int64_t total() const { return static_cast<std::int64_t>(elements.size()); }

  // The array as [before, along dimension d, after].
  std::int64_t before(std::int64_t d) const {
    std::int64_t n = 1;
    for (std::int64_t k = 0; k < d; ++k) n *= size(k);
    return n;
  }
  std::int64_t after(std::int64_t d) const {
    std::int64_t n = 1;
    for (std::int64_t k = d + 1; k < rank(); ++k) n *= size(k);
    return n;
  }
};

template <class F>
Array each(const Array& x, F f) {
  Array y(x.sizes);
  for (std::int64_t i = 0; i < x.total(); ++i) y[i] = f(x[i]);
  return y;
}
template <class F>
Array pairs(const Array& a, const Array& b, F f) {
  Array y(a.sizes);
  for (std::int64_t i = 0; i < a.total(); ++i) y[i] = f(a[i], b[i]);
  return y;
}

inline Array softmax(const Array& x, bool logarithm) {
  Array y(x.sizes);
  const std::int64_t n = x.size(-1);
  for (std::int64_t row = 0; row < x.total() / n; ++row) {
    double most = x[row * n].value;
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, x[row * n + i].value);
    Number sum;
    for (std::int64_t i = 0; i < n; ++i) sum += exp(x[row * n + i] - most);
    for (std::int64_t i = 0; i < n; ++i) {
      const Number& e = x[row * n + i];
      y[row * n + i] = logarithm ? e - most - log(sum) : exp(e - most) / sum;
    }
  }
  return y;
}

inline Array transpose(const Array& x, std::int64_t d, std::int64_t e) {
  Sizes sizes = x.sizes;
  std::swap(sizes[static_cast<std::size_t>(d)], sizes[static_cast<std::size_t>(e)]);
  Array y(sizes);
  std::vector<std::int64_t> at(sizes.size(), 0);
  for (std::int64_t i = 0; i < y.total(); ++i) {
    std::int64_t rest = i;
    for (std::size_t k = sizes.size(); k-- > 0;) {
      at[k] = rest % sizes[k];
      rest /= sizes[k];
    }
    std::swap(at[static_cast<std::size_t>(d)], at[static_cast<std::size_t>(e)]);
    std::int64_t from = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) from = from * x.sizes[k] + at[k];
    y[i] = x[from];
  }
  return y;
}

inline Array narrow(const Array& x, std::int64_t d, std::int64_t start, std::int64_t length) {
  Sizes sizes = x.sizes;
  sizes[static_cast<std::size_t>(d)] = length;
  Array y(sizes);
  const std::int64_t after = x.after(d);
  for (std::int64_t b = 0; b < x.before(d); ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t a = 0; a < after; ++a) {
        y[(b * length + i) * after + a] = x[(b * x.size(d) + start + i) * after + a];
      }
    }
  }
  return y;
}

inline Array cat(const Array& x, const Array& z, std::int64_t d) {
  Sizes sizes = x.sizes;
  sizes[static_cast<std::size_t>(d)] += z.size(d);
  Array y(sizes);
  const std::int64_t after = x.after(d);
  for (std::int64_t b = 0; b < x.before(d); ++b) {
    for (std::int64_t i = 0; i < y.size(d); ++i) {
      const bool first = i < x.size(d);
      const Array& source = first ? x : z;
      const std::int64_t at = first ? i : i - x.size(d);
      for (std::int64_t a = 0; a < after; ++a) {
        y[(b * y.size(d) + i) * after + a] = source[(b * source.size(d) + at) * after + a];
      }
    }
  }
  return y;
}

inline Array summed(const Array& x, std::int64_t d, bool keep, bool mean) {
  Sizes sizes = x.sizes;
  if (keep) {
    sizes[static_cast<std::size_t>(d)] = 1;
  } else {
    sizes.erase(sizes.begin() + d);
  }
  Array y(sizes);
  const std::int64_t after = x.after(d);
  for (std::int64_t b = 0; b < x.before(d); ++b) {
    for (std::int64_t a = 0; a < after; ++a) {
      Number sum;
      for (std::int64_t i = 0; i < x.size(d); ++i) sum += x[(b * x.size(d) + i) * after + a];
      y[b * after + a] = mean ? sum / static_cast<double>(x.size(d)) : rounded(sum);
    }
  }
  return y;
}

inline Array var(const Array& x, std::int64_t d, bool keep, std::int64_t correction) {
  const Array mean = summed(x, d, true, true);
  Array squares = x;
  const std::int64_t after = x.after(d);
  for (std::int64_t i = 0; i < x.total(); ++i) {
    const Number apart = x[i] - mean[i / (after * x.size(d)) * after + i % after];
    squares[i] = apart * apart / static_cast<double>(x.size(d) - correction);
  }
  return summed(squares, d, keep, false);
}

inline Array index_select(const Array& x, const std::vector<std::int64_t>& numbers) {
  Array y = narrow(x, numbers[0], numbers[1], 1);
  for (std::size_t i = 2; i < numbers.size(); ++i) {
    y = cat(y, narrow(x, numbers[0], numbers[i], 1), numbers[0]);
  }
  return y;
}

// The greatest element along a dimension, or the least.
inline Array extreme(const Array& x, std::int64_t d, bool least) {
  Array y = summed(narrow(x, d, 0, 1), d, false, false);
  for (std::int64_t i = 1; i < x.size(d); ++i) {
    y = pairs(y, summed(narrow(x, d, i, 1), d, false, false),
              [&](const Number& a, const Number& b) {
                return least ? 0.0 - greater(0.0 - a, 0.0 - b) : greater(a, b);
              });
  }
  return y;
}

inline Array argmax(const Array& x, std::int64_t d) {
  Sizes sizes = x.sizes;
  sizes.erase(sizes.begin() + d);
  Array y(sizes);
  const std::int64_t after = x.after(d);
  for (std::int64_t b = 0; b < x.before(d); ++b) {
    for (std::int64_t a = 0; a < after; ++a) {
      const auto at = [&](std::int64_t i) { return x[(b * x.size(d) + i) * after + a]; };
      std::int64_t most = 0;
      for (std::int64_t i = 1; i < x.size(d); ++i) {
        if (is_greater(at(i), at(most))) most = i;
      }
      y[b * after + a] = static_cast<double>(most);
    }
  }
  return y;
}

// Calls `body(place in the plane, which of the window)` for what a window covers of the plane.
template <class F>
void window(std::int64_t height, std::int64_t width, std::int64_t top, std::int64_t left,
            std::int64_t kernel, std::int64_t dilation, F body) {
  for (std::int64_t i = 0; i < kernel; ++i) {
    for (std::int64_t j = 0; j < kernel; ++j) {
      const std::int64_t y = top + i * dilation;
      const std::int64_t x = left + j * dilation;
      if (y >= 0 && y < height && x >= 0 && x < width) body(y * width + x, i * kernel + j);
    }
  }
}

inline Array pool(const Array& x, const Step& step) {
  const std::int64_t kernel = step.numbers[0];
  const std::int64_t stride = step.numbers[1];
  const std::int64_t padding = step.numbers[2];
  Sizes sizes = step.sizes;
  sizes.insert(sizes.begin(), x.sizes[0]);
  Array y(sizes);
  const std::int64_t plane = x.size(2) * x.size(3);
  const std::int64_t out = y.size(2) * y.size(3);
  for (std::int64_t p = 0; p < x.size(0) * x.size(1); ++p) {
    for (std::int64_t o = 0; o < out; ++o) {
      std::optional<Number> most;
      Number sum;
      std::int64_t met = 0;
      window(x.size(2), x.size(3), o / y.size(3) * stride - padding,
             o % y.size(3) * stride - padding, kernel, 1, [&](std::int64_t at, std::int64_t) {
               const Number& element = x[p * plane + at];
               most = most ? greater(*most, element) : element;
               sum += element;
               ++met;
             });
      if (step.op == Op::max_pool) {
        y[p * out + o] = *most;
      } else {
        y[p * out + o] = sum / static_cast<double>(step.numbers[3] != 0 ? kernel * kernel : met);
      }
    }
  }
  return y;
}

// x · weightᵀ + bias, of the last dimension.
inline Array linear(const Array& x, const Array& weight, const Array* bias) {
  Sizes sizes = x.sizes;
  sizes.back() = weight.size(0);
  Array y(sizes);
  const std::int64_t in = weight.size(1);
  const std::int64_t out = weight.size(0);
  for (std::int64_t row = 0; row < x.total() / in; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      Number sum = bias ? (*bias)[o] : Number();
      for (std::int64_t i = 0; i < in; ++i) sum += x[row * in + i] * weight[o * in + i];
      y[row * out + o] = rounded(sum);
    }
  }
  return y;
}

inline Array conv2d(const Array& x, const Array& weight, const Array* bias, const Step& step,
                    const std::vector<std::int64_t>& numbers) {
  const std::int64_t kernel = numbers[2];
  const std::int64_t stride = numbers[3];
  const std::int64_t padding = numbers[4];
  const std::int64_t dilation = numbers[5];
  const std::int64_t groups = numbers[6];
  Sizes sizes = step.sizes;
  sizes.insert(sizes.begin(), x.sizes[0]);
  Array y(sizes);
  const std::int64_t in = x.size(1) / groups;
  const std::int64_t per_group = y.size(1) / groups;
  const std::int64_t plane = x.size(2) * x.size(3);
  const std::int64_t out = y.size(2) * y.size(3);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t c = 0; c < y.size(1); ++c) {
      for (std::int64_t o = 0; o < out; ++o) {
        Number sum = bias ? (*bias)[c] : Number();
        for (std::int64_t k = 0; k < in; ++k) {
          const std::int64_t channel = c / per_group * in + k;
          window(x.size(2), x.size(3), o / y.size(3) * stride - padding,
                 o % y.size(3) * stride - padding, kernel, dilation,
                 [&](std::int64_t at, std::int64_t tap) {
                   sum += x[(n * x.size(1) + channel) * plane + at] *
                          weight[(c * in + k) * kernel * kernel + tap];
                 });
        }
        y[(n * y.size(1) + c) * out + o] = rounded(sum);
      }
    }
  }
  return y;
}

inline Array layer_norm(const Array& x, std::int64_t dims, const Array* weight, const Array* bias) {
  Array y(x.sizes);
  std::int64_t n = 1;
  for (std::int64_t k = 0; k < dims; ++k) n *= x.size(-1 - k);
  for (std::int64_t row = 0; row < x.total() / n; ++row) {
    Number mean;
    for (std::int64_t i = 0; i < n; ++i) mean += x[row * n + i] / static_cast<double>(n);
    Number var;
    for (std::int64_t i = 0; i < n; ++i) {
      const Number d = x[row * n + i] - mean;
      var += d * d / static_cast<double>(n);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      Number e = (x[row * n + i] - mean) / sqrt(var + 1e-5);
      if (weight) e = e * (*weight)[i];
      y[row * n + i] = bias ? e + (*bias)[i] : e;
    }
  }
  return y;
}

// Of [rows, channels, …], each group of channels by itself.
inline Array group_norm(const Array& x, std::int64_t groups, const Array* weight,
                        const Array* bias) {
  Array grouped = x;
  grouped.sizes = {x.size(0) * groups, x.after(0) / groups};
  Array y = layer_norm(grouped, 1, nullptr, nullptr);
  y.sizes = x.sizes;
  for (std::int64_t i = 0; i < y.total() && weight; ++i) {
    const std::int64_t channel = i / x.after(1) % x.size(1);
    y[i] = y[i] * (*weight)[channel] + (*bias)[channel];
  }
  return y;
}

// The weights of softmax(q · kᵀ / √size) and what they make of v, of [length, size] at each start.
inline void attend(const Array& q, const Array& k, const Array& v, std::int64_t q_start,
                   std::int64_t kv_start, std::int64_t lengths, std::int64_t keys,
                   std::int64_t stride, std::int64_t size, bool causal, Array& out, Array* weights,
                   std::int64_t weights_start, double share) {
  for (std::int64_t i = 0; i < lengths; ++i) {
    const std::int64_t seen = causal ? std::min(i + 1, keys) : keys;
    Array scores({1, seen});
    for (std::int64_t j = 0; j < seen; ++j) {
      Number dot;
      for (std::int64_t s = 0; s < size; ++s) {
        dot += q[q_start + i * stride + s] * k[kv_start + j * stride + s];
      }
      scores[j] = dot / std::sqrt(static_cast<double>(size));
    }
    const Array p = softmax(scores, false);
    for (std::int64_t s = 0; s < size; ++s) {
      Number sum;
      for (std::int64_t j = 0; j < seen; ++j) sum += p[j] * v[kv_start + j * stride + s];
      out[q_start + i * stride + s] = sum;
    }
    for (std::int64_t j = 0; weights && j < seen; ++j) {
      Number& to = (*weights)[weights_start + i * keys + j];
      to += p[j] * share;
    }
  }
}

// One layer in one direction: [rows, length, in] to [rows, length, hidden], and the last state.
inline std::pair<Array, Array> recurrent(Op op, const Array& x, const Array& w_ih,
                                         const Array& w_hh, const Array* b_ih, const Array* b_hh,
                                         bool reverse) {
  const std::int64_t hidden = w_hh.size(1);
  const std::int64_t length = x.size(1);
  Array y({x.size(0), length, hidden});
  Array last({x.size(0), hidden});
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    Array h({1, hidden});
    Array c({1, hidden});
    for (std::int64_t s = 0; s < length; ++s) {
      const std::int64_t t = reverse ? length - 1 - s : s;
      Array now({1, x.size(2)});
      for (std::int64_t i = 0; i < x.size(2); ++i) now[i] = x[(n * length + t) * x.size(2) + i];
      const Array a = linear(now, w_ih, b_ih);
      const Array b = linear(h, w_hh, b_hh);
      Array next({1, hidden});
      for (std::int64_t k = 0; k < hidden; ++k) {
        const auto both = [&](std::int64_t gate) {
          return a[gate * hidden + k] + b[gate * hidden + k];
        };
        if (op == Op::lstm) {
          c[k] = sigmoid(both(1)) * c[k] + sigmoid(both(0)) * tanh(both(2));
          next[k] = sigmoid(both(3)) * tanh(c[k]);
        } else if (op == Op::gru) {
          const Number r = sigmoid(both(0));
          const Number z = sigmoid(both(1));
          const Number candidate = tanh(a[2 * hidden + k] + r * b[2 * hidden + k]);
          next[k] = (1.0 - z) * candidate + z * h[k];
        } else {
          next[k] = op == Op::rnn ? tanh(both(0)) : relu(both(0));
        }
        y[(n * length + t) * hidden + k] = next[k];
      }
      h = next;
    }
    for (std::int64_t k = 0; k < hidden; ++k) last[n * hidden + k] = h[k];
  }
  return {y, last};
}

}  // namespace lockstep::testing::programs
