// SPDX-License-Identifier: Apache-2.0
#include <cudasim/cudasim.hpp>
#include <cudasim/device_array.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <cudnn.h>

namespace cudasim {
namespace cudnn_test {

using testing::Library;
using testing::numbers;
using testing::reported;
using testing::Work;

struct Sizes {
  int batch, channels, height, width, filters, rows, cols, stride, padding;
  int dilation = 1;
  int groups = 1;

  int out_height() const { return (height + 2 * padding - dilation * (rows - 1) - 1) / stride + 1; }
  int out_width() const { return (width + 2 * padding - dilation * (cols - 1) - 1) / stride + 1; }
  int depth() const { return channels / groups; }  // of a filter
  std::size_t x() const { return count(batch, channels, height, width); }
  std::size_t w() const { return count(filters, depth(), rows, cols); }
  std::size_t y() const { return count(batch, filters, out_height(), out_width()); }
  static std::size_t count(int a, int b, int c, int d) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
           static_cast<std::size_t>(d);
  }
};

// The descriptors of a convolution, and a handle on a stream.
struct Call {
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  std::size_t bytes = 0;
  void* workspace = nullptr;

  Call(Work& work, const Sizes& s, cudnnDataType_t type) {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, work.stream()), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&x);
    cudnnCreateTensorDescriptor(&y);
    cudnnCreateFilterDescriptor(&w);
    cudnnCreateConvolutionDescriptor(&conv);
    cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, type, s.batch, s.channels, s.height, s.width);
    cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, type, s.batch, s.filters, s.out_height(),
                               s.out_width());
    cudnnSetFilter4dDescriptor(w, type, CUDNN_TENSOR_NCHW, s.filters, s.depth(), s.rows, s.cols);
    cudnnSetConvolution2dDescriptor(conv, s.padding, s.padding, s.stride, s.stride, s.dilation,
                                    s.dilation, CUDNN_CROSS_CORRELATION, type);
    cudnnSetConvolutionGroupCount(conv, s.groups);
    cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH);
    bytes = 4096;
    workspace = work.room<char>(bytes);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    EXPECT_EQ(cudnnDestroyTensorDescriptor(x), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyTensorDescriptor(y), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(w), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  }

  template <class T>
  cudnnStatus_t forward(
      const T* images, const T* weight, T* results, T alpha = 1, T beta = 0,
      cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
    return cudnnConvolutionForward(handle, &alpha, x, images, w, weight, conv, algorithm, workspace,
                                   bytes, &beta, y, results);
  }
};

// The definition, summed over for each element of the result.
template <class Term>
void for_each_term(const Sizes& s, const Term& term) {
  for (int n = 0; n < s.batch; ++n)
    for (int k = 0; k < s.filters; ++k)
      for (int i = 0; i < s.out_height(); ++i)
        for (int j = 0; j < s.out_width(); ++j)
          for (int c = 0; c < s.depth(); ++c)
            for (int r = 0; r < s.rows; ++r)
              for (int q = 0; q < s.cols; ++q) {
                const int row = i * s.stride + r * s.dilation - s.padding;
                const int col = j * s.stride + q * s.dilation - s.padding;
                const int channel = k / (s.filters / s.groups) * s.depth() + c;
                if (row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
                const auto place = [](int a, int b, int size_b, int c3, int size_c, int d,
                                      int size_d) {
                  return static_cast<std::size_t>(((a * size_b + b) * size_c + c3) * size_d + d);
                };
                term(place(n, channel, s.channels, row, s.height, col, s.width),
                     place(k, c, s.depth(), r, s.rows, q, s.cols),
                     place(n, k, s.filters, i, s.out_height(), j, s.out_width()));
              }
}

template <class T>
class Convolutions : public Library {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Convolutions, Types);

TYPED_TEST(Convolutions, AreThoseOfTheDefinition) {
  using T = TypeParam;
  const auto type = std::is_same_v<T, float> ? CUDNN_DATA_FLOAT : CUDNN_DATA_DOUBLE;
  for (const Sizes& s :
       {Sizes{2, 3, 5, 6, 4, 3, 2, 1, 0}, Sizes{1, 1, 4, 4, 1, 1, 1, 1, 0},
        Sizes{3, 2, 7, 5, 3, 3, 3, 2, 1}, Sizes{1, 2, 3, 3, 2, 5, 5, 1, 2},
        Sizes{2, 4, 5, 6, 6, 3, 2, 1, 1, 1, 2}, Sizes{2, 3, 7, 6, 3, 2, 3, 2, 1, 2, 3}}) {
    Work work;
    Call call(work, s, type);
    const auto x = numbers<T>(s.x(), 1);
    const auto w = numbers<T>(s.w(), 2);
    const auto dy = numbers<T>(s.y(), 3);
    std::vector<T> y(s.y()), dx(s.x()), dw(s.w());
    for_each_term(s, [&](std::size_t image, std::size_t weight, std::size_t result) {
      y[result] += x[image] * w[weight];
      dx[image] += dy[result] * w[weight];
      dw[weight] += dy[result] * x[image];
    });
    const T one = 1;
    const T none = 0;
    const T* const on_x = work.array(x);
    const T* const on_w = work.array(w);
    const T* const on_dy = work.array(dy);
    T* const out_y = work.template room<T>(s.y());
    T* const out_x = work.template room<T>(s.x());
    T* const out_w = work.array(numbers<T>(s.w(), 4));
    ASSERT_EQ(call.forward(on_x, on_w, out_y), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnConvolutionBackwardData(call.handle, &one, call.w, on_w, call.y, on_dy,
                                           call.conv, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
                                           call.workspace, call.bytes, &none, call.x, out_x),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnConvolutionBackwardFilter(call.handle, &one, call.x, on_x, call.y, on_dy,
                                             call.conv, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
                                             call.workspace, call.bytes, &one, call.w, out_w),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(work.values(out_y, y.size()), y);
    EXPECT_EQ(work.values(out_x, dx.size()), dx);
    const auto before = numbers<T>(s.w(), 4);
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += before[i];  // beta is 1
    EXPECT_EQ(work.values(out_w, dw.size()), dw);
  }
}

using Cudnn = Library;
constexpr Sizes kSmall{2, 3, 5, 6, 4, 3, 2, 1, 0};

TEST_F(Cudnn, TheDefaultMathOfF32RoundsToTf32) {
  const auto convolved = [](cudnnMathType_t math) {
    Work work;
    Call call(work, {1, 1, 1, 1, 1, 1, 1, 1, 0}, CUDNN_DATA_FLOAT);
    cudnnSetConvolutionMathType(call.conv, math);
    auto* const y = work.room<float>(1);
    EXPECT_EQ(call.forward(work.array(std::vector{1 + 0x1p-9F}),
                           work.array(std::vector{1 + 0x1p-12F}), y),
              CUDNN_STATUS_SUCCESS);
    return work.values(y, 1)[0];
  };
  EXPECT_EQ(convolved(CUDNN_FMA_MATH), (1 + 0x1p-9F) * (1 + 0x1p-12F));
  EXPECT_EQ(convolved(CUDNN_DEFAULT_MATH), 1 + 0x1p-9F);
}

TEST_F(Cudnn, TheHeuristicsOfferWhatAProgramShouldNotTake) {
  Work work;
  Call call(work, kSmall, CUDNN_DATA_FLOAT);
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 8> found;
  int count = 0;
  ASSERT_EQ(cudnnGetConvolutionBackwardFilterAlgorithm_v7(call.handle, call.x, call.y, call.conv,
                                                          call.w, 8, &count, found.data()),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(count, 4);
  EXPECT_EQ(found[0].determinism, CUDNN_NON_DETERMINISTIC);
  EXPECT_GT(found[2].memory, std::size_t{1} << 33);
  EXPECT_EQ(found[3].determinism, CUDNN_DETERMINISTIC);
  std::size_t bytes = 0;
  EXPECT_EQ(cudnnGetConvolutionBackwardFilterWorkspaceSize(call.handle, call.x, call.y, call.conv,
                                                           call.w, found[3].algo, &bytes),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(bytes, found[3].memory);
  const float one = 1;
  const float none = 0;
  EXPECT_EQ(cudnnConvolutionBackwardFilter(
                call.handle, &one, call.x, work.array(numbers<float>(kSmall.x(), 1)), call.y,
                work.array(numbers<float>(kSmall.y(), 2)), call.conv, found[0].algo, nullptr, 0,
                &none, call.w, work.room<float>(kSmall.w())),
            CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(reported("gives other bits every time"));
}

TEST_F(Cudnn, CallsThatCannotBeAreReported) {
  const auto destroyed = [] {
    cudnnTensorDescriptor_t gone = nullptr;
    cudnnCreateTensorDescriptor(&gone);
    cudnnDestroyTensorDescriptor(gone);
    return gone;
  }();
  struct Spoilt {
    Call& call;
    cudaStream_t stream;
    const float*& x;
    cudnnConvolutionFwdAlgo_t& algorithm;
  };
  const struct {
    const char* what;
    cudnnStatus_t status;
    std::function<void(Spoilt)> spoil;
  } mistakes[] = {
      {"a null pointer", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, [](Spoilt s) { s.x = nullptr; }},
      {"a misaligned pointer", CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
       [](Spoilt s) {
         s.x = reinterpret_cast<const float*>(reinterpret_cast<const char*>(s.x) + 1);
       }},
      {"a work space of 3 bytes", CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
       [](Spoilt s) { s.call.bytes = 3; }},
      {"where the algorithm needs", CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
       [](Spoilt s) { s.call.workspace = nullptr; }},
      {"algorithm 4 does not fit", CUDNN_STATUS_NOT_SUPPORTED,
       [](Spoilt s) { s.algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT; }},
      {"do not fit", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
       [](Spoilt s) {
         cudnnSetTensor4dDescriptor(s.call.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 3, 4);
       }},
      {"in 3 groups do not fit", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
       [](Spoilt s) {
         cudnnSetFilter4dDescriptor(s.call.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 6, 3, 3, 2);
         cudnnSetTensor4dDescriptor(s.call.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 6, 3, 5);
         cudnnSetConvolutionGroupCount(s.call.conv, 3);
       }},
      {"2 groups do not divide 3 channels", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
       [](Spoilt s) { cudnnSetConvolutionGroupCount(s.call.conv, 2); }},
      {"different types", CUDNN_STATUS_BAD_PARAM,
       [](Spoilt s) {
         cudnnSetFilter4dDescriptor(s.call.w, CUDNN_DATA_DOUBLE, CUDNN_TENSOR_NCHW, 4, 3, 3, 2);
       }},
      {"the math type 1 is not simulated", CUDNN_STATUS_BAD_PARAM,
       [](Spoilt s) { cudnnSetConvolutionMathType(s.call.conv, CUDNN_TENSOR_OP_MATH); }},
      {"made for device 0, but device 1 is current", CUDNN_STATUS_EXECUTION_FAILED,
       [](Spoilt) { (void)cudaSetDevice(1); }},
      {"another thread has set the handle's stream", CUDNN_STATUS_BAD_PARAM,
       [](Spoilt s) {
         std::thread([&] {
           (void)cudaSetDevice(0);
           (void)cudnnSetStream(s.call.handle, s.stream);
         }).join();
       }},
  };
  for (const auto& mistake : mistakes) {
    Work work;
    Call call(work, kSmall, CUDNN_DATA_FLOAT);
    const float* x = work.array(numbers<float>(kSmall.x(), 1));
    auto algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    mistake.spoil({call, work.stream(), x, algorithm});
    EXPECT_EQ(call.forward(x, work.array(numbers<float>(kSmall.w(), 2)),
                           work.room<float>(kSmall.y()), 1.F, 0.F, algorithm),
              mistake.status)
        << mistake.what;
    (void)cudaSetDevice(0);
    EXPECT_TRUE(reported(mistake.what)) << mistake.what;
    std::array<char, 200> text{};
    cudnnGetLastErrorString(text.data(), text.size());
  }
  EXPECT_EQ(cudnnSetTensor4dDescriptor(destroyed, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("the descriptor was never made"));
}

TEST_F(Cudnn, DescriptorsAreChecked) {
  Work work;
  Call call(work, kSmall, CUDNN_DATA_FLOAT);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(call.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0, 1, 1, 1),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("a size of 0"));
  EXPECT_EQ(cudnnSetTensor4dDescriptor(call.x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 1, 1, 1),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("is not simulated"));
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(call.conv, 0, 0, 1, 1, 0, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("dilation"));
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(call.conv, 0, 0, 1, 1, 1, 1, CUDNN_CONVOLUTION,
                                            CUDNN_DATA_FLOAT),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("the mode"));
  EXPECT_EQ(cudnnSetConvolutionGroupCount(call.conv, 0), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("a group count of 0"));
  EXPECT_EQ(cudnnSetTensor4dDescriptor(call.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1 << 16,
                                       1 << 15, 1, 1),
            CUDNN_STATUS_NOT_SUPPORTED);
  std::array<char, 200> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  EXPECT_NE(std::string(text.data()).find("a group count of 0"), std::string::npos);
}

TEST_F(Cudnn, ItsWorkIsOrderedLikeAnyOther) {
  without_fibers();
  Work one;
  Work two;
  Call call(two, kSmall, CUDNN_DATA_FLOAT);
  const float* const x = one.array(numbers<float>(kSmall.x(), 1));
  const float* const w = one.array(numbers<float>(kSmall.w(), 2));
  ASSERT_EQ(cudaMemsetAsync(const_cast<float*>(w), 0, kSmall.w() * sizeof(float), one.stream()),
            cudaSuccess);
  ASSERT_EQ(call.forward(x, w, two.room<float>(kSmall.y())), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(reported("cudnnConvolutionForward"));
}

}  // namespace cudnn_test
}  // namespace cudasim
