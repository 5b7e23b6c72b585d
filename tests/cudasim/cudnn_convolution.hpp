// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/library.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <cudnn.h>

// What the simulated cuDNN knows of a convolution, and how it computes one.
struct cudnnTensorStruct {
  int type = -1;  // until it is set
  int n = 0, c = 0, h = 0, w = 0;
};
struct cudnnFilterStruct {
  int type = -1;
  int k = 0, c = 0, h = 0, w = 0;
};
struct cudnnConvolutionStruct {
  int type = -1;
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int math = CUDNN_DEFAULT_MATH;
  int groups = 1;
};

namespace cudasim::dnn {

// y = conv(x, w), whichever of the three is asked for.
struct Convolution {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct conv;

  std::size_t x_size() const { return size(x.n, x.c, x.h, x.w); }
  std::size_t y_size() const { return size(y.n, y.c, y.h, y.w); }
  std::size_t w_size() const { return size(w.k, w.c, w.h, w.w); }
  std::size_t element() const {
    return x.type == CUDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
  }
  // TF32 is what the default math of f32 may use.
  bool rounds() const { return x.type == CUDNN_DATA_FLOAT && conv.math != CUDNN_FMA_MATH; }

  static std::size_t size(int a, int b, int c, int d) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
           static_cast<std::size_t>(d);
  }

  cudnnStatus_t check(const char* call) const {
    const auto wrong = [&](const auto&... parts) {
      return misuse(CUDNN_STATUS_BAD_PARAM, call, ": ", parts...);
    };
    if (x.type < 0 || y.type < 0 || w.type < 0 || conv.type < 0) {
      return wrong("a descriptor was made, but never set");
    }
    if (y.type != x.type || w.type != x.type || conv.type != x.type) {
      return wrong("the operands and the computation are of different types");
    }
    if (conv.math != CUDNN_FMA_MATH && conv.math != CUDNN_DEFAULT_MATH) {
      return wrong("the math type ", conv.math, " is not simulated");
    }
    const int height = (x.h + 2 * conv.pad_h - conv.dilation_h * (w.h - 1) - 1) / conv.stride_h + 1;
    const int width = (x.w + 2 * conv.pad_w - conv.dilation_w * (w.w - 1) - 1) / conv.stride_w + 1;
    if (x.c % conv.groups != 0 || w.k % conv.groups != 0) {
      return misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, call, ": ", conv.groups,
                    " groups do not divide ", x.c, " channels and ", w.k, " filters");
    }
    if (w.c != x.c / conv.groups || y.n != x.n || y.c != w.k || y.h != height || y.w != width) {
      return misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, call, ": images ", x.n, "x", x.c, "x",
                    x.h, "x", x.w, ", a filter ", w.k, "x", w.c, "x", w.h, "x", w.w,
                    " and results ", y.n, "x", y.c, "x", y.h, "x", y.w, " in ", conv.groups,
                    " groups do not fit");
    }
    return CUDNN_STATUS_SUCCESS;
  }
};

// As the units of the math type take an operand.
inline float operand(const Convolution& p, float value) {
  return p.rounds() ? rounded_to(value, 10) : value;
}
inline double operand(const Convolution&, double value) { return value; }

// Calls visit(image, result, weight) with the places of each product that the convolution sums.
template <class Visit>
void for_each_product(const Convolution& p, const Visit& visit) {
  const auto at = [](int a, int b, int size_b, int c, int size_c, int d, int size_d) {
    return ((static_cast<std::size_t>(a) * static_cast<std::size_t>(size_b) +
             static_cast<std::size_t>(b)) *
                static_cast<std::size_t>(size_c) +
            static_cast<std::size_t>(c)) *
               static_cast<std::size_t>(size_d) +
           static_cast<std::size_t>(d);
  };
  for (int n = 0; n < p.y.n; ++n) {
    for (int k = 0; k < p.y.c; ++k) {
      const int first = k / (p.y.c / p.conv.groups) * p.w.c;  // channel of the group
      for (int c = 0; c < p.w.c; ++c) {
        for (int r = 0; r < p.w.h; ++r) {
          for (int s = 0; s < p.w.w; ++s) {
            const std::size_t weight = at(k, c, p.w.c, r, p.w.h, s, p.w.w);
            for (int i = 0; i < p.y.h; ++i) {
              const int row = i * p.conv.stride_h - p.conv.pad_h + r * p.conv.dilation_h;
              if (row < 0 || row >= p.x.h) continue;
              for (int j = 0; j < p.y.w; ++j) {
                const int col = j * p.conv.stride_w - p.conv.pad_w + s * p.conv.dilation_w;
                if (col < 0 || col >= p.x.w) continue;
                visit(at(n, first + c, p.x.c, row, p.x.h, col, p.x.w),
                      at(n, k, p.y.c, i, p.y.h, j, p.y.w), weight);
              }
            }
          }
        }
      }
    }
  }
}

// out = alpha · sums + beta · out; with beta = 0 what it held is not read.
template <class T>
void blend(T alpha, const std::vector<T>& sums, T beta, T* out) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out[i] = alpha * sums[i] + (beta == 0 ? T(0) : beta * out[i]);
  }
}

template <class T>
void forward(const Convolution& p, T alpha, const T* x, const T* w, T beta, T* y) {
  std::vector<T> sums(p.y_size());
  for_each_product(p, [&](std::size_t image, std::size_t result, std::size_t weight) {
    sums[result] += operand(p, x[image]) * operand(p, w[weight]);
  });
  blend(alpha, sums, beta, y);
}

template <class T>
void backward_data(const Convolution& p, T alpha, const T* w, const T* dy, T beta, T* dx) {
  std::vector<T> sums(p.x_size());
  for_each_product(p, [&](std::size_t image, std::size_t result, std::size_t weight) {
    sums[image] += operand(p, dy[result]) * operand(p, w[weight]);
  });
  blend(alpha, sums, beta, dx);
}

template <class T>
void backward_filter(const Convolution& p, T alpha, const T* x, const T* dy, T beta, T* dw) {
  std::vector<T> sums(p.w_size());
  for_each_product(p, [&](std::size_t image, std::size_t result, std::size_t weight) {
    sums[weight] += operand(p, x[image]) * operand(p, dy[result]);
  });
  blend(alpha, sums, beta, dw);
}

}  // namespace cudasim::dnn
