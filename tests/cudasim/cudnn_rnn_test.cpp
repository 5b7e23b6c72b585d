// SPDX-License-Identifier: Apache-2.0
#include <cudasim/cudasim.hpp>
#include <cudasim/device_array.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace cudasim {
namespace cudnn_rnn_test {

using testing::Library;
using testing::numbers;
using testing::reported;
using testing::Work;

constexpr int kLength = 3;
constexpr int kBatch = 2;
constexpr int kInputs = 3;
constexpr int kHidden = 2;
constexpr std::size_t kX = std::size_t{kLength} * kBatch * kInputs;
constexpr std::size_t kY = std::size_t{kLength} * kBatch * kHidden;
constexpr std::size_t kState = std::size_t{kBatch} * kHidden;

std::size_t gates_of(cudnnRNNMode_t cell) {
  return cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
}

// A network of f64 and what goes in and out of it, on a handle of its own.
struct Network {
  cudnnHandle_t handle = nullptr;
  cudnnDropoutDescriptor_t dropout = nullptr;
  cudnnRNNDescriptor_t rnn = nullptr;
  cudnnRNNDataDescriptor_t x = nullptr, y = nullptr;
  cudnnTensorDescriptor_t state = nullptr;
  cudnnRNNMode_t cell;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;
  void* work = nullptr;
  void* reserve = nullptr;
  double *xs, *hx, *cx, *ys, *hy, *cy;

  Network(Work& on, cudnnRNNMode_t of) : cell(of) {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, on.stream()), CUDNN_STATUS_SUCCESS);
    cudnnCreateDropoutDescriptor(&dropout);
    cudnnSetDropoutDescriptor(dropout, handle, 0, nullptr, 0, 0);
    cudnnCreateRNNDescriptor(&rnn);
    EXPECT_EQ(set(), CUDNN_STATUS_SUCCESS);
    cudnnCreateRNNDataDescriptor(&x);
    cudnnCreateRNNDataDescriptor(&y);
    EXPECT_EQ(set_data(x, kInputs), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set_data(y, kHidden), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&state);
    const std::array sizes{1, kBatch, kHidden};
    const std::array strides{kBatch * kHidden, kHidden, 1};
    EXPECT_EQ(cudnnSetTensorNdDescriptor(state, CUDNN_DATA_DOUBLE, 3, sizes.data(), strides.data()),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_TRAINING, x, &work_bytes,
                                        &reserve_bytes),
              CUDNN_STATUS_SUCCESS);
    work = on.room<char>(work_bytes);
    reserve = on.room<char>(reserve_bytes);
    xs = on.array(scaled(kX, 1));
    hx = on.array(scaled(kState, 2));
    cx = on.array(scaled(kState, 3));
    ys = on.room<double>(kY);
    hy = on.room<double>(kState);
    cy = on.room<double>(kState);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() {
    EXPECT_EQ(cudnnDestroyTensorDescriptor(state), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyRNNDataDescriptor(y), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyRNNDataDescriptor(x), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyRNNDescriptor(rnn), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroyDropoutDescriptor(dropout), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  }

  // Numbers of about one, so that no gate is saturated.
  static std::vector<double> scaled(std::size_t count, unsigned seed) {
    std::vector<double> values = numbers<double>(count, seed);
    for (double& value : values) value /= 4;
    return values;
  }

  cudnnStatus_t set(cudnnRNNBiasMode_t biases = CUDNN_RNN_DOUBLE_BIAS, int layers = 1,
                    cudnnDataType_t precision = CUDNN_DATA_DOUBLE) {
    return cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, cell, biases,
                                    CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_DOUBLE,
                                    precision, math, kInputs, kHidden, kHidden, layers, dropout, 0);
  }
  static cudnnStatus_t set_data(cudnnRNNDataDescriptor_t data, int size, int length = kLength) {
    const std::vector<int> lengths(kBatch, length);
    return cudnnSetRNNDataDescriptor(data, CUDNN_DATA_DOUBLE,
                                     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, kLength, kBatch, size,
                                     lengths.data(), nullptr);
  }

  cudnnStatus_t forward(const void* weights, cudnnForwardMode_t mode = CUDNN_FWD_MODE_TRAINING) {
    return cudnnRNNForward(handle, rnn, mode, nullptr, x, xs, y, ys, state, hx, hy, state, cx, cy,
                           weight_bytes, weights, work_bytes, work, reserve_bytes, reserve);
  }
  cudnnStatus_t backward_data(const void* weights, const double* dy, const double* dhy,
                              const double* dcy, double* dx, double* dhx, double* dcx) {
    return cudnnRNNBackwardData_v8(handle, rnn, nullptr, y, ys, dy, x, dx, state, hx, dhy, dhx,
                                   state, cx, dcy, dcx, weight_bytes, weights, work_bytes, work,
                                   reserve_bytes, reserve);
  }
  cudnnStatus_t backward_weights(void* gradients) {
    return cudnnRNNBackwardWeights_v8(handle, rnn, CUDNN_WGRAD_MODE_ADD, nullptr, x, xs, state, hx,
                                      y, ys, weight_bytes, gradients, work_bytes, work,
                                      reserve_bytes, reserve);
  }
};

// y, h and c of the definition, in that order. Matrices and biases are in the order of their ids.
std::vector<double> defined(cudnnRNNMode_t cell, const std::vector<std::vector<double>>& matrices,
                            const std::vector<std::vector<double>>& biases,
                            const std::vector<double>& x, std::vector<double> h,
                            std::vector<double> c) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> all;
  for (std::size_t t = 0; t < kLength; ++t) {
    const std::vector<double> before = h;
    for (std::size_t b = 0; b < kBatch; ++b) {
      for (std::size_t j = 0; j < kHidden; ++j) {
        const auto sum = [&](std::size_t id) {
          double total = biases[id][j];
          const bool of_state = id >= gates_of(cell);
          for (std::size_t i = 0; i < static_cast<std::size_t>(of_state ? kHidden : kInputs); ++i) {
            total += of_state ? matrices[id][j * kHidden + i] * before[b * kHidden + i]
                              : matrices[id][j * kInputs + i] * x[(t * kBatch + b) * kInputs + i];
          }
          return total;
        };
        double& state = h[b * kHidden + j];
        if (cell == CUDNN_LSTM) {
          double& carried = c[b * kHidden + j];
          carried = sigmoid(sum(1) + sum(5)) * carried +
                    sigmoid(sum(0) + sum(4)) * std::tanh(sum(2) + sum(6));
          state = sigmoid(sum(3) + sum(7)) * std::tanh(carried);
        } else if (cell == CUDNN_GRU) {
          const double z = sigmoid(sum(1) + sum(4));
          const double n = std::tanh(sum(2) + sigmoid(sum(0) + sum(3)) * sum(5));
          state = (1 - z) * n + z * state;
        } else {
          state =
              cell == CUDNN_RNN_TANH ? std::tanh(sum(0) + sum(1)) : std::fmax(sum(0) + sum(1), 0);
        }
      }
    }
    all.insert(all.end(), h.begin(), h.end());
  }
  all.insert(all.end(), h.begin(), h.end());
  if (cell == CUDNN_LSTM) all.insert(all.end(), c.begin(), c.end());
  return all;
}

// The matrices and biases of a weight space.
struct Parameters {
  std::vector<std::vector<double>> matrices, biases;
  std::vector<std::size_t> places;  // of each element, in that order, in elements of the space
};

Parameters parameters_of(Network& network, const std::vector<double>& space, const void* at) {
  Parameters found;
  cudnnTensorDescriptor_t matrix = nullptr;
  cudnnTensorDescriptor_t bias = nullptr;
  cudnnCreateTensorDescriptor(&matrix);
  cudnnCreateTensorDescriptor(&bias);
  const std::size_t gates = gates_of(network.cell);
  for (std::size_t id = 0; id < 2 * gates; ++id) {
    void* matrix_at = nullptr;
    void* bias_at = nullptr;
    EXPECT_EQ(cudnnGetRNNWeightParams(network.handle, network.rnn, 0, network.weight_bytes, at,
                                      static_cast<int>(id), matrix, &matrix_at, bias, &bias_at),
              CUDNN_STATUS_SUCCESS);
    const auto take = [&](const void* place, std::size_t size) {
      const auto first = static_cast<std::size_t>(static_cast<const double*>(place) -
                                                  static_cast<const double*>(at));
      std::vector<double> values;
      for (std::size_t i = 0; i < size; ++i) {
        values.push_back(space[first + i]);
        found.places.push_back(first + i);
      }
      return values;
    };
    found.matrices.push_back(take(matrix_at, kHidden * (id < gates ? kInputs : kHidden)));
    found.biases.push_back(take(bias_at, kHidden));
  }
  cudnnDestroyTensorDescriptor(matrix);
  cudnnDestroyTensorDescriptor(bias);
  return found;
}

class Cells : public Library, public ::testing::WithParamInterface<cudnnRNNMode_t> {};
INSTANTIATE_TEST_SUITE_P(CudnnRnn, Cells,
                         ::testing::Values(CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU));

TEST_P(Cells, AreThoseOfTheDefinition) {
  Work work;
  Network network(work, GetParam());
  const bool has_c = network.cell == CUDNN_LSTM;
  const std::vector<double> space = Network::scaled(network.weight_bytes / sizeof(double) + 1, 4);
  double* const weights = work.array(space);
  const Parameters own = parameters_of(network, space, weights);
  const std::vector<double> x = Network::scaled(kX, 1);
  const std::vector<double> h = Network::scaled(kState, 2);
  const std::vector<double> c = Network::scaled(kState, 3);
  const std::vector<double> expected = defined(network.cell, own.matrices, own.biases, x, h, c);
  ASSERT_EQ(network.forward(weights), CUDNN_STATUS_SUCCESS);
  std::vector<double> found = work.values(network.ys, kY);
  const std::vector<double> last = work.values(network.hy, kState);
  found.insert(found.end(), last.begin(), last.end());
  if (has_c) {
    const std::vector<double> carried = work.values(network.cy, kState);
    found.insert(found.end(), carried.begin(), carried.end());
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-14) << i;

  // The gradients of a weighted sum of the results are its differences.
  const std::vector<double> factors = Network::scaled(expected.size(), 5);
  const auto part = [&](std::size_t from, std::size_t size) {
    const auto first = factors.begin() + static_cast<std::ptrdiff_t>(from);
    return work.array(std::vector<double>(first, first + static_cast<std::ptrdiff_t>(size)));
  };
  double* const dx = work.room<double>(kX);
  double* const dhx = work.room<double>(kState);
  double* const dcx = work.room<double>(kState);
  double* const dw = work.array(std::vector<double>(space.size(), 1.0));
  ASSERT_EQ(network.backward_data(weights, part(0, kY), part(kY, kState),
                                  has_c ? part(kY + kState, kState) : nullptr, dx, dhx,
                                  has_c ? dcx : nullptr),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(network.backward_weights(dw), CUDNN_STATUS_SUCCESS);
  const auto value = [&](const std::vector<double>& a, const std::vector<double>& b,
                         const std::vector<double>& d, const std::vector<double>& w) {
    const Parameters with = parameters_of(network, w, weights);
    const std::vector<double> results = defined(network.cell, with.matrices, with.biases, a, b, d);
    double sum = 0;
    for (std::size_t i = 0; i < results.size(); ++i) sum += factors[i] * results[i];
    return sum;
  };
  const auto expect_slope = [](const std::vector<double>& at, std::size_t i, double gradient,
                               const auto& of) {
    constexpr double kStep = 1e-6;
    std::vector<double> up = at;
    std::vector<double> down = at;
    up[i] += kStep;
    down[i] -= kStep;
    EXPECT_NEAR(gradient, (of(up) - of(down)) / (2 * kStep), 1e-7) << i;
  };
  const std::vector<double> to_x = work.values(dx, kX);
  const std::vector<double> to_h = work.values(dhx, kState);
  const std::vector<double> to_w = work.values(dw, space.size());
  for (std::size_t i = 0; i < kX; ++i) {
    expect_slope(x, i, to_x[i], [&](const auto& moved) { return value(moved, h, c, space); });
  }
  for (std::size_t i = 0; i < kState; ++i) {
    expect_slope(h, i, to_h[i], [&](const auto& moved) { return value(x, moved, c, space); });
  }
  if (has_c) {
    const std::vector<double> to_c = work.values(dcx, kState);
    for (std::size_t i = 0; i < kState; ++i) {
      expect_slope(c, i, to_c[i], [&](const auto& moved) { return value(x, h, moved, space); });
    }
  }
  for (const std::size_t place : own.places) {  // the library adds: to 1
    expect_slope(space, place, to_w[place] - 1,
                 [&](const auto& moved) { return value(x, h, c, moved); });
  }
}

using CudnnRnn = Library;

TEST_F(CudnnRnn, AWeightSpaceHasNoBiasesWhereTheModeHasNone) {
  Work work;
  Network network(work, CUDNN_GRU);
  cudnnTensorDescriptor_t any = nullptr;
  cudnnCreateTensorDescriptor(&any);
  const auto bias_of = [&](cudnnRNNBiasMode_t mode, int id) {
    EXPECT_EQ(network.set(mode), CUDNN_STATUS_SUCCESS);
    void* matrix = nullptr;
    void* bias = nullptr;
    EXPECT_EQ(cudnnGetRNNWeightParams(network.handle, network.rnn, 0, network.weight_bytes,
                                      network.work, id, any, &matrix, any, &bias),
              CUDNN_STATUS_SUCCESS);
    return bias != nullptr;
  };
  EXPECT_FALSE(bias_of(CUDNN_RNN_NO_BIAS, 0));
  EXPECT_TRUE(bias_of(CUDNN_RNN_SINGLE_INP_BIAS, 2));
  EXPECT_FALSE(bias_of(CUDNN_RNN_SINGLE_INP_BIAS, 3));
  EXPECT_FALSE(bias_of(CUDNN_RNN_SINGLE_REC_BIAS, 2));
  EXPECT_TRUE(bias_of(CUDNN_RNN_SINGLE_REC_BIAS, 3));
  cudnnDestroyTensorDescriptor(any);
}

TEST_F(CudnnRnn, CallsThatCannotBeAreReported) {
  const struct {
    const char* what;
    cudnnStatus_t status;
    std::function<void(Network&)> spoil;
  } mistakes[] = {
      {"a null pointer", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, [](Network& n) { n.xs = nullptr; }},
      {"a misaligned pointer", CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
       [](Network& n) { n.hx = reinterpret_cast<double*>(reinterpret_cast<char*>(n.hx) + 4); }},
      {"a weight space of 8 bytes", CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
       [](Network& n) { n.weight_bytes = 8; }},
      {"a work space of 3 bytes", CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
       [](Network& n) { n.work_bytes = 3; }},
      {"a reserve space of 9 bytes", CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
       [](Network& n) { n.reserve_bytes = 9; }},
      {"without a reserve space", CUDNN_STATUS_BAD_PARAM, [](Network& n) { n.reserve = nullptr; }},
      {"do not fit a network", CUDNN_STATUS_BAD_PARAM,
       [](Network& n) { (void)Network::set_data(n.x, kInputs + 1); }},
      {"the results do not fit", CUDNN_STATUS_BAD_PARAM,
       [](Network& n) { (void)Network::set_data(n.y, kHidden + 1); }},
      {"the states do not fit", CUDNN_STATUS_BAD_PARAM,
       [](Network& n) {
         const std::array sizes{1, kBatch, kHidden + 1};
         const std::array strides{kBatch * (kHidden + 1), kHidden + 1, 1};
         (void)cudnnSetTensorNdDescriptor(n.state, CUDNN_DATA_DOUBLE, 3, sizes.data(),
                                          strides.data());
       }},
      {"made for device 0, but device 1 is current", CUDNN_STATUS_EXECUTION_FAILED,
       [](Network&) { (void)cudaSetDevice(1); }},
  };
  for (const auto& mistake : mistakes) {
    Work work;
    Network network(work, CUDNN_LSTM);
    double* const weights = work.room<double>(network.weight_bytes / sizeof(double) + 1);
    mistake.spoil(network);
    EXPECT_EQ(network.forward(weights), mistake.status) << mistake.what;
    (void)cudaSetDevice(0);
    EXPECT_TRUE(reported(mistake.what)) << mistake.what;
  }
}

TEST_F(CudnnRnn, DescriptorsAreChecked) {
  Work work;
  Network network(work, CUDNN_LSTM);
  EXPECT_EQ(network.set(CUDNN_RNN_DOUBLE_BIAS, 0), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("and 0 layers"));
  EXPECT_EQ(network.set(CUDNN_RNN_DOUBLE_BIAS, 2), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("is not simulated"));
  EXPECT_EQ(network.set(CUDNN_RNN_DOUBLE_BIAS, 1, CUDNN_DATA_FLOAT), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("is not computed in the type 0"));
  EXPECT_EQ(Network::set_data(network.x, 0), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("or no lengths"));
  EXPECT_EQ(Network::set_data(network.x, kInputs, kLength - 1), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("several lengths"));
  cudnnDropoutDescriptor_t unset = nullptr;
  cudnnCreateDropoutDescriptor(&unset);
  std::swap(unset, network.dropout);
  EXPECT_EQ(network.set(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("the dropout descriptor"));
  std::swap(unset, network.dropout);
  cudnnDestroyDropoutDescriptor(unset);
}

// A forward, its backward for the data, that for the weights: each but once, and in that order.
TEST_F(CudnnRnn, TheReserveSpaceIsForOneCallAfterTheOther) {
  Work work;
  Network network(work, CUDNN_GRU);
  double* const weights = work.array(Network::scaled(network.weight_bytes / sizeof(double) + 1, 4));
  double* const gradients =
      work.array(std::vector<double>(network.weight_bytes / sizeof(double) + 1));
  double* const dy = work.array(Network::scaled(kY, 5));
  double* const dx = work.room<double>(kX);
  const auto data = [&] {
    return network.backward_data(weights, dy, nullptr, nullptr, dx, nullptr, nullptr);
  };
  ASSERT_EQ(network.forward(weights), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(network.backward_weights(gradients), CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(reported("cudnnRNNBackwardWeights_v8: the reserve space is not as"));
  ASSERT_EQ(data(), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(network.backward_weights(gradients), CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(take_errors().empty());
  ASSERT_EQ(data(), CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(reported("cudnnRNNBackwardData_v8: the reserve space is not as"));
}

TEST_F(CudnnRnn, ItsWorkIsOrderedLikeAnyOther) {
  without_fibers();
  Work one;
  Work two;
  Network network(two, CUDNN_RNN_TANH);
  double* const weights = one.array(Network::scaled(network.weight_bytes / sizeof(double) + 1, 4));
  ASSERT_EQ(cudaMemsetAsync(weights, 0, network.weight_bytes, one.stream()), cudaSuccess);
  ASSERT_EQ(network.forward(weights), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(reported("cudnnRNNForward"));
}

}  // namespace cudnn_rnn_test
}  // namespace cudasim
