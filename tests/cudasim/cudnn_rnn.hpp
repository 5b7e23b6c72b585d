// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/library.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cudnn.h>

// What the simulated cuDNN knows of a recurrent network of one layer in one direction, and how it
// computes one.
struct cudnnDropoutStruct {
  bool set = false;
};
struct cudnnRNNStruct {
  int type = -1;  // until it is set
  int cell = 0, biases = 0, math = 0;
  int inputs = 0, hidden = 0;
};
struct cudnnRNNDataStruct {
  int type = -1;
  int length = 0, batch = 0, size = 0;
};

namespace cudasim::dnn {

struct Network {
  cudnnRNNStruct rnn;
  int steps = 0, rows = 0;

  std::size_t element() const { return rnn.type == CUDNN_DATA_DOUBLE ? 8 : 4; }
  std::size_t length() const { return static_cast<std::size_t>(steps); }
  std::size_t batch() const { return static_cast<std::size_t>(rows); }
  std::size_t inputs() const { return static_cast<std::size_t>(rnn.inputs); }
  std::size_t hidden() const { return static_cast<std::size_t>(rnn.hidden); }
  std::size_t gates() const { return rnn.cell == CUDNN_LSTM ? 4 : rnn.cell == CUDNN_GRU ? 3 : 1; }
  bool has_c() const { return rnn.cell == CUDNN_LSTM; }
  std::size_t x_size() const { return length() * batch() * inputs(); }
  std::size_t y_size() const { return length() * batch() * hidden(); }
  std::size_t state_size() const { return batch() * hidden(); }
  bool has_bias(bool of_state) const {
    return rnn.biases == CUDNN_RNN_DOUBLE_BIAS ||
           rnn.biases == (of_state ? CUDNN_RNN_SINGLE_REC_BIAS : CUDNN_RNN_SINGLE_INP_BIAS);
  }

  // The weight space: the matrices of the input side by side, a gap, those of the state, then each
  // bias at a boundary of its own. In bytes.
  std::size_t matrix_at(std::size_t id) const {
    const std::size_t of_state =
        id >= gates() ? gates() * hidden() * inputs() * element() + kGap : 0;
    return of_state + id % gates() * hidden() * (id >= gates() ? hidden() : inputs()) * element();
  }
  std::size_t bias_at(std::size_t id) const {
    return matrix_at(2 * gates() - 1) + (hidden() * hidden() + id * bias_stride()) * element();
  }
  std::size_t weight_bytes() const { return bias_at(2 * gates()); }
  std::size_t workspace_bytes() const { return state_size() * element() + 20; }

  // The reserve space: whose turn it is, then for each time step the gates, and a state or share.
  std::size_t reserve_bytes() const { return kHeader + (gates() + 1) * y_size() * element(); }
  static constexpr std::size_t kHeader = 16;
  static constexpr std::uint64_t kForData = 0x646e6e2066776421U;     // forward has been here
  static constexpr std::uint64_t kForWeights = 0x646e6e2062776421U;  // and backward for the data

 private:
  static constexpr std::size_t kGap = 48;
  std::size_t bias_stride() const { return hidden() + 5; }
};

// As the units of the math type take an operand.
inline float operand(const Network& p, float value) {
  return p.rnn.math == CUDNN_FMA_MATH ? value : rounded_to(value, 10);
}
inline double operand(const Network&, double value) { return value; }

// A network over memory of one type.
template <class T>
class Recurrence {
 public:
  Recurrence(const Network& p, const void* weights, void* reserve)
      : p_(p), weights_(static_cast<const char*>(weights)), reserve_(static_cast<char*>(reserve)) {}

  // Null states are zeros, or not wanted.
  void forward(const T* x, const T* hx, const T* cx, T* y, T* hy, T* cy) const {
    const std::size_t size = p_.state_size();
    std::vector<T> h = started(hx);
    std::vector<T> c = started(cx);
    for (std::size_t t = 0; t < p_.length(); ++t) {
      const std::vector<T> before = h;
      for (std::size_t b = 0; b < p_.batch(); ++b) {
        for (std::size_t j = 0; j < p_.hidden(); ++j) {
          const std::size_t unit = b * p_.hidden() + j;
          T from_x[4] = {};
          T from_h[4] = {};
          for (std::size_t k = 0; k < p_.gates(); ++k) {
            from_x[k] = row(k, j, x + (t * p_.batch() + b) * p_.inputs(), p_.inputs());
            from_h[k] = row(p_.gates() + k, j, before.data() + b * p_.hidden(), p_.hidden());
          }
          h[unit] = step(t, unit, from_x, from_h, before[unit], c[unit]);
          y[t * size + unit] = h[unit];
        }
      }
    }
    if (hy) std::memcpy(hy, h.data(), size * sizeof(T));
    if (cy && p_.has_c()) std::memcpy(cy, c.data(), size * sizeof(T));
    if (reserve_) mark(Network::kForData);
  }

  // Overwrites the gates in the reserve space with their gradients.
  void backward_data(const T* y, const T* dy, const T* hx, const T* dhy, const T* cx, const T* dcy,
                     T* dx, T* dhx, T* dcx) const {
    const std::size_t size = p_.state_size();
    std::vector<T> dh = started(dhy);
    std::vector<T> dc = started(dcy);
    for (std::size_t t = p_.length(); t-- > 0;) {
      for (std::size_t unit = 0; unit < size; ++unit) {
        const T before = t > 0 ? y[(t - 1) * size + unit] : hx ? hx[unit] : T(0);
        const T c_before = !p_.has_c() ? T(0) : t > 0 ? extra(t - 1, unit) : cx ? cx[unit] : T(0);
        dh[unit] = gradient(t, unit, dh[unit] + dy[t * size + unit], dc[unit], y[t * size + unit],
                            before, c_before);
      }
      for (std::size_t b = 0; b < p_.batch(); ++b) {
        for (std::size_t i = 0; i < p_.inputs(); ++i) {
          dx[(t * p_.batch() + b) * p_.inputs() + i] = column(false, t, b, i, p_.inputs());
        }
        for (std::size_t i = 0; i < p_.hidden(); ++i) {
          dh[b * p_.hidden() + i] += column(true, t, b, i, p_.hidden());
        }
      }
    }
    if (dhx) std::memcpy(dhx, dh.data(), size * sizeof(T));
    if (dcx && p_.has_c()) std::memcpy(dcx, dc.data(), size * sizeof(T));
    mark(Network::kForWeights);
  }

  // Adds to the weight space of gradients.
  void backward_weights(const T* x, const T* hx, const T* y, void* gradients) const {
    char* const to = static_cast<char*>(gradients);
    const std::size_t size = p_.state_size();
    for (std::size_t id = 0; id < 2 * p_.gates(); ++id) {
      const bool of_state = id >= p_.gates();
      const std::size_t columns = of_state ? p_.hidden() : p_.inputs();
      for (std::size_t t = 0; t < p_.length(); ++t) {
        for (std::size_t b = 0; b < p_.batch(); ++b) {
          for (std::size_t j = 0; j < p_.hidden(); ++j) {
            const T grad = to_gate(of_state, t, b * p_.hidden() + j, id % p_.gates());
            if (p_.has_bias(of_state)) *at<T>(to, p_.bias_at(id), j) += grad;
            for (std::size_t i = 0; i < columns; ++i) {
              T in{};
              if (!of_state) {
                in = x[(t * p_.batch() + b) * columns + i];
              } else if (t > 0) {
                in = y[(t - 1) * size + b * columns + i];
              } else if (hx) {
                in = hx[b * columns + i];
              }
              *at<T>(to, p_.matrix_at(id), j * columns + i) += operand(p_, grad) * operand(p_, in);
            }
          }
        }
      }
    }
  }

  // Whether the reserve space is as the call before left it.
  bool is_for(std::uint64_t turn) const { return std::memcmp(reserve_, &turn, sizeof turn) == 0; }

 private:
  template <class U>
  static U* at(char* base, std::size_t bytes, std::size_t element) {
    return reinterpret_cast<U*>(base + bytes) + element;
  }

  void mark(std::uint64_t turn) const { std::memcpy(reserve_, &turn, sizeof turn); }

  std::vector<T> started(const T* values) const {
    if (values == nullptr) return std::vector<T>(p_.state_size());
    return {values, values + p_.state_size()};
  }

  T weight(std::size_t id, std::size_t element) const {
    return *at<const T>(const_cast<char*>(weights_), p_.matrix_at(id), element);
  }

  // One row of a matrix times a vector, and its bias.
  T row(std::size_t id, std::size_t j, const T* vector, std::size_t columns) const {
    T sum{};
    for (std::size_t i = 0; i < columns; ++i) {
      sum += operand(p_, weight(id, j * columns + i)) * operand(p_, vector[i]);
    }
    if (!p_.has_bias(id >= p_.gates())) return sum;
    return sum + *at<const T>(const_cast<char*>(weights_), p_.bias_at(id), j);
  }

  // The gradients of the gates times one column of their matrices.
  T column(bool of_state, std::size_t t, std::size_t b, std::size_t i, std::size_t columns) const {
    T sum{};
    for (std::size_t k = 0; k < p_.gates(); ++k) {
      const std::size_t id = k + (of_state ? p_.gates() : 0);
      for (std::size_t j = 0; j < p_.hidden(); ++j) {
        sum += operand(p_, to_gate(of_state, t, b * p_.hidden() + j, k)) *
               operand(p_, weight(id, j * columns + i));
      }
    }
    return sum;
  }

  // In the reserve space: a gate, and what there is besides: c, or what the state gives to n.
  T& gate(std::size_t t, std::size_t unit, std::size_t k) const {
    return *at<T>(reserve_, Network::kHeader, (t * p_.gates() + k) * p_.state_size() + unit);
  }
  T& extra(std::size_t t, std::size_t unit) const {
    return *at<T>(reserve_, Network::kHeader,
                  p_.gates() * p_.y_size() + t * p_.state_size() + unit);
  }
  T to_gate(bool of_state, std::size_t t, std::size_t unit, std::size_t k) const {
    return of_state && p_.rnn.cell == CUDNN_GRU && k == 2 ? extra(t, unit) : gate(t, unit, k);
  }
  void keep(std::size_t t, std::size_t unit, const T* gates, T more) const {
    if (!reserve_) return;
    for (std::size_t k = 0; k < p_.gates(); ++k) gate(t, unit, k) = gates[k];
    extra(t, unit) = more;
  }

  static T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }

  // The new h.
  T step(std::size_t t, std::size_t unit, const T* x, const T* h, T before, T& c) const {
    switch (p_.rnn.cell) {
      case CUDNN_LSTM: {
        const T gates[] = {sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1]), std::tanh(x[2] + h[2]),
                           sigmoid(x[3] + h[3])};
        c = gates[1] * c + gates[0] * gates[2];
        keep(t, unit, gates, c);
        return gates[3] * std::tanh(c);
      }
      case CUDNN_GRU: {
        const T r = sigmoid(x[0] + h[0]);
        const T gates[] = {r, sigmoid(x[1] + h[1]), std::tanh(x[2] + r * h[2])};
        keep(t, unit, gates, h[2]);
        return (T(1) - gates[1]) * gates[2] + gates[1] * before;
      }
      default: {
        const T sum = x[0] + h[0];
        const T result = p_.rnn.cell == CUDNN_RNN_TANH ? std::tanh(sum) : sum < 0 ? T(0) : sum;
        keep(t, unit, &result, T(0));
        return result;
      }
    }
  }

  // What the h before gets otherwise than by a matrix; dc becomes that of the c before.
  T gradient(std::size_t t, std::size_t unit, T dh, T& dc, T y, T before, T c_before) const {
    switch (p_.rnn.cell) {
      case CUDNN_LSTM: {
        const T i = gate(t, unit, 0), f = gate(t, unit, 1), g = gate(t, unit, 2),
                o = gate(t, unit, 3);
        const T tanh_c = std::tanh(extra(t, unit));
        const T to_c = dc + dh * o * (T(1) - tanh_c * tanh_c);
        gate(t, unit, 0) = to_c * g * i * (T(1) - i);
        gate(t, unit, 1) = to_c * c_before * f * (T(1) - f);
        gate(t, unit, 2) = to_c * i * (T(1) - g * g);
        gate(t, unit, 3) = dh * tanh_c * o * (T(1) - o);
        dc = to_c * f;
        return T(0);
      }
      case CUDNN_GRU: {
        const T r = gate(t, unit, 0), z = gate(t, unit, 1), n = gate(t, unit, 2);
        const T to_n = dh * (T(1) - z) * (T(1) - n * n);
        gate(t, unit, 0) = to_n * extra(t, unit) * r * (T(1) - r);
        gate(t, unit, 1) = dh * (before - n) * z * (T(1) - z);
        gate(t, unit, 2) = to_n;
        extra(t, unit) = to_n * r;
        return dh * z;
      }
      default:
        gate(t, unit, 0) =
            p_.rnn.cell == CUDNN_RNN_TANH ? dh * (T(1) - y * y) : (y > 0 ? dh : T(0));
        return T(0);
    }
  }

  const Network p_;
  const char* const weights_;
  char* const reserve_;
};

}  // namespace cudasim::dnn
