// SPDX-License-Identifier: Apache-2.0

// cuDNN's recurrent networks, over the simulated runtime, as lockstep uses them: one layer in one
// direction, over sequences of one length. Each call checks its arguments when it is issued,
// declares what it reads and writes, and computes plainly when its turn comes; only then can be
// told whether the reserve space is as the call before has left it.
#include <cudasim/cudasim.hpp>
#include <cudasim/cudnn_algorithms.hpp>
#include <cudasim/cudnn_handle.hpp>
#include <cudasim/cudnn_rnn.hpp>
#include <cudasim/library.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace cudasim::dnn {
namespace {

// A network as its descriptors have it; y and the states may be left out.
cudnnStatus_t load(Network& p, const char* call, cudnnRNNDescriptor_t rnn,
                   cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y = nullptr,
                   cudnnTensorDescriptor_t h = nullptr, cudnnTensorDescriptor_t c = nullptr) {
  const auto* const network = alive<cudnnRNNStruct>().find(rnn);
  const auto* const in = alive<cudnnRNNDataStruct>().find(x);
  if (!network || !in || network->type < 0 || in->type < 0) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a descriptor was never made, or never set");
  }
  p = {*network, in->length, in->batch};
  if (in->type != network->type || in->size != network->inputs) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": sequences of vectors of ", in->size,
                 " do not fit a network for ", network->inputs, ", or are of another type");
  }
  if (y == nullptr) return CUDNN_STATUS_SUCCESS;
  const auto* const out = alive<cudnnRNNDataStruct>().find(y);
  if (!out || out->type != network->type || out->size != network->hidden ||
      out->length != in->length || out->batch != in->batch) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the results do not fit the network");
  }
  for (const cudnnTensorDescriptor_t state : {h, p.has_c() ? c : h}) {
    const auto* const found = alive<cudnnTensorStruct>().find(state);
    if (!found || found->type != network->type || found->n != 1 || found->c != in->batch ||
        found->h != network->hidden || found->w != 1) {
      return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the states do not fit the network");
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

// What a call touches besides its operands.
struct Spaces {
  std::size_t weight_bytes;
  const void* weights;
  std::size_t work_bytes;
  void* work;
  std::size_t reserve_bytes;
  void* reserve;
};

// An operand, which may be left out if it is `optional`.
struct Operand {
  const void* data;
  std::size_t size;  // in elements
  bool write = false;
  bool optional = false;
};

// `body` as an operation of the handle's stream, once all is as it must be. `turn` is what the
// reserve space is for, or 0.
template <class Body>
cudnnStatus_t issue(const char* call, cudnnHandle_t handle, const Network& p,
                    const std::int32_t* lengths, const std::vector<Operand>& operands,
                    const Spaces& spaces, bool writes_weights, std::uint64_t turn,
                    const Body& body) {
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  const cudnnContext* const context = usable(handle, call, status);
  if (!context) return status;
  if (lengths != nullptr) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": lengths on the device are not to be given");
  }
  const auto fits = [&](const char* what, const void* data, std::size_t bytes, std::size_t needed) {
    if (bytes >= needed && (needed == 0 || data != nullptr)) return true;
    status = wrong(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, call, ": a ", what, " space of ",
                   bytes, " bytes where ", needed, " are needed");
    return false;
  };
  const std::size_t reserve = turn == 0 && spaces.reserve == nullptr ? 0 : p.reserve_bytes();
  if (!fits("weight", spaces.weights, spaces.weight_bytes, p.weight_bytes()) ||
      !fits("work", spaces.work, spaces.work_bytes, p.workspace_bytes()) ||
      !fits("reserve", spaces.reserve, spaces.reserve_bytes, reserve)) {
    return status;
  }
  std::vector<MemoryUse> uses;
  for (const Operand& operand : operands) {
    if (operand.data == nullptr && !operand.optional) {
      return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call, ": a null pointer");
    }
    if (reinterpret_cast<std::uintptr_t>(operand.data) % p.element() != 0) {
      return wrong(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, call, ": a misaligned pointer");
    }
    if (operand.data != nullptr) {
      uses.push_back({operand.data, operand.size * p.element(), operand.write});
    }
  }
  uses.push_back({spaces.weights, spaces.weight_bytes, writes_weights});
  uses.push_back({spaces.work, spaces.work_bytes, true});
  if (reserve > 0) uses.push_back({spaces.reserve, spaces.reserve_bytes, true});
  void* const kept = reserve > 0 ? spaces.reserve : nullptr;
  const auto run = [=]<class T>(T) {
    std::memset(spaces.work, 0xa5, spaces.work_bytes);
    const Recurrence<T> recurrence(p, spaces.weights, kept);
    if (turn != 0 && !recurrence.is_for(turn)) {
      report(text(call, ": the reserve space is not as the call that comes before leaves it"));
    }
    body(recurrence, T{});
  };
  const bool issued = enqueue(context->stream, call, std::move(uses), [=] {
    if (p.rnn.type == CUDNN_DATA_DOUBLE) {
      run(double{});
    } else {
      run(float{});
    }
  });
  return issued ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

bool is_known(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* made) {
  return create(made, "cudnnCreateDropoutDescriptor");
}
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyDropoutDescriptor");
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t descriptor, cudnnHandle_t handle,
                                        float dropout, void* states, std::size_t bytes,
                                        unsigned long long) {
  constexpr auto call = "cudnnSetDropoutDescriptor";
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  auto* const found = alive<cudnnDropoutStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  if (dropout != 0 || states != nullptr || bytes != 0) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": dropout is not simulated");
  }
  found->set = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type,
                                         int dims, const int* sizes, const int* strides) {
  constexpr auto call = "cudnnSetTensorNdDescriptor";
  auto* const found = alive<cudnnTensorStruct>().find(descriptor);
  if (!found || !sizes || !strides) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a null pointer, or never made");
  }
  if (dims != 3 || !is_known(type)) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": ", dims, " dimensions, or the type ",
                 static_cast<int>(type), ", are not simulated");
  }
  if (std::any_of(sizes, sizes + dims, [](int size) { return size < 1; })) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": a size below 1");
  }
  if (strides[2] != 1 || strides[1] != sizes[2] || strides[0] != sizes[1] * sizes[2]) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": a tensor with gaps is not simulated");
  }
  *found = {type, sizes[0], sizes[1], sizes[2], 1};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* made) {
  return create(made, "cudnnCreateRNNDescriptor");
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyRNNDescriptor");
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t biases,
                                       cudnnDirectionMode_t direction,
                                       cudnnRNNInputMode_t input_mode, cudnnDataType_t type,
                                       cudnnDataType_t precision, cudnnMathType_t math,
                                       std::int32_t inputs, std::int32_t hidden,
                                       std::int32_t projected, std::int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, std::uint32_t flags) {
  constexpr auto call = "cudnnSetRNNDescriptor_v8";
  auto* const found = alive<cudnnRNNStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  const auto* const no_dropout = alive<cudnnDropoutStruct>().find(dropout);
  if (!no_dropout || !no_dropout->set) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the dropout descriptor was never made, or set");
  }
  if (inputs < 1 || hidden < 1 || layers < 1 || projected < 1 || projected > hidden ||
      (cell != CUDNN_LSTM && projected != hidden)) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": sizes of ", inputs, ", ", hidden, ", ", projected,
                 " and ", layers, " layers");
  }
  if (precision != type ||
      (math != CUDNN_DEFAULT_MATH && !(type == CUDNN_DATA_FLOAT && math == CUDNN_FMA_MATH))) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": the type ", static_cast<int>(type),
                 " is not computed in the type ", static_cast<int>(precision), " with the math ",
                 static_cast<int>(math));
  }
  const int most_of_small = cell == CUDNN_LSTM || cell == CUDNN_GRU ? 128 : 256;
  const bool small = algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H &&
                     type == CUDNN_DATA_FLOAT && hidden <= most_of_small;
  if ((algorithm != CUDNN_RNN_ALGO_STANDARD && !small) || direction != CUDNN_UNIDIRECTIONAL ||
      layers != 1 || projected != hidden || input_mode != CUDNN_LINEAR_INPUT || !is_known(type) ||
      flags != CUDNN_RNN_PADDED_IO_DISABLED) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": a network of that kind is not simulated");
  }
  *found = {type, cell, biases, math, inputs, hidden};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* made) {
  return create(made, "cudnnCreateRNNDataDescriptor");
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
  return destroy(descriptor, "cudnnDestroyRNNDataDescriptor");
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int length, int batch,
                                        int size, const int* lengths, void*) {
  constexpr auto call = "cudnnSetRNNDataDescriptor";
  auto* const found = alive<cudnnRNNDataStruct>().find(descriptor);
  if (!found) return wrong(CUDNN_STATUS_BAD_PARAM, call, ": the descriptor was never made");
  if (length < 1 || batch < 1 || size < 1 || lengths == nullptr) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": sizes of ", length, ", ", batch, " and ", size,
                 ", or no lengths");
  }
  if (length > 65535) return CUDNN_STATUS_NOT_SUPPORTED;  // as the library: nobody's mistake
  if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED || !is_known(type) ||
      std::any_of(lengths, lengths + batch, [length](int one) { return one != length; })) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call,
                 ": the layout, the type, or sequences of several lengths are not simulated");
  }
  *found = {type, length, batch, size};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        std::size_t* work, std::size_t* reserve) {
  constexpr auto call = "cudnnGetRNNTempSpaceSizes";
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  Network p;
  if (const auto loaded = load(p, call, rnn, x); loaded != CUDNN_STATUS_SUCCESS) return loaded;
  if (work) *work = p.workspace_bytes();
  if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? p.reserve_bytes() : 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         std::size_t* bytes) {
  constexpr auto call = "cudnnGetRNNWeightSpaceSize";
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  const auto* const network = alive<cudnnRNNStruct>().find(rnn);
  if (!network || network->type < 0 || !bytes) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": never set, or no room for a result");
  }
  *bytes = Network{*network}.weight_bytes();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                      std::int32_t layer, std::size_t bytes, const void* space,
                                      std::int32_t id, cudnnTensorDescriptor_t matrix,
                                      void** matrix_at, cudnnTensorDescriptor_t bias,
                                      void** bias_at) {
  constexpr auto call = "cudnnGetRNNWeightParams";
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  if (!usable(handle, call, status)) return status;
  const auto* const network = alive<cudnnRNNStruct>().find(rnn);
  auto* const of_matrix = alive<cudnnTensorStruct>().find(matrix);
  auto* const of_bias = alive<cudnnTensorStruct>().find(bias);
  if (!network || network->type < 0 || !of_matrix || !of_bias || !matrix_at || !bias_at || !space) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": never made, never set, or a null pointer");
  }
  const Network p{*network};
  const auto gates = static_cast<std::int32_t>(p.gates());
  if (layer != 0 || id < 0 || id >= 2 * gates || bytes < p.weight_bytes()) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": no matrix ", id, " of layer ", layer,
                 " in a weight space of ", bytes, " bytes");
  }
  const bool of_state = id >= gates;
  auto* const base = static_cast<char*>(const_cast<void*>(space));
  const auto place = static_cast<std::size_t>(id);
  *of_matrix = {network->type, 1, network->hidden, of_state ? network->hidden : network->inputs, 1};
  *matrix_at = base + p.matrix_at(place);
  *of_bias = {network->type, 1, network->hidden, 1, 1};
  *bias_at = p.has_bias(of_state) ? base + p.bias_at(place) : nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                              cudnnForwardMode_t mode, const std::int32_t* lengths,
                              cudnnRNNDataDescriptor_t x_descriptor, const void* x,
                              cudnnRNNDataDescriptor_t y_descriptor, void* y,
                              cudnnTensorDescriptor_t h, const void* hx, void* hy,
                              cudnnTensorDescriptor_t c, const void* cx, void* cy,
                              std::size_t weight_bytes, const void* weights, std::size_t work_bytes,
                              void* work, std::size_t reserve_bytes, void* reserve) {
  constexpr auto call = "cudnnRNNForward";
  Network p;
  const auto loaded = load(p, call, rnn, x_descriptor, y_descriptor, h, c);
  if (loaded != CUDNN_STATUS_SUCCESS) return loaded;
  if (mode == CUDNN_FWD_MODE_INFERENCE) {
    reserve = nullptr;
  } else if (reserve == nullptr) {
    return wrong(CUDNN_STATUS_BAD_PARAM, call, ": training without a reserve space");
  }
  if (!p.has_c()) cx = cy = nullptr;
  return issue(call, handle, p, lengths,
               {{x, p.x_size()},
                {y, p.y_size(), true},
                {hx, p.state_size(), false, true},
                {hy, p.state_size(), true, true},
                {cx, p.state_size(), false, true},
                {cy, p.state_size(), true, true}},
               {weight_bytes, weights, work_bytes, work, reserve_bytes, reserve}, false, 0,
               [=]<class T>(const Recurrence<T>& recurrence, T) {
                 recurrence.forward(static_cast<const T*>(x), static_cast<const T*>(hx),
                                    static_cast<const T*>(cx), static_cast<T*>(y),
                                    static_cast<T*>(hy), static_cast<T*>(cy));
               });
}

cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const std::int32_t* lengths,
    cudnnRNNDataDescriptor_t y_descriptor, const void* y, const void* dy,
    cudnnRNNDataDescriptor_t x_descriptor, void* dx, cudnnTensorDescriptor_t h, const void* hx,
    const void* dhy, void* dhx, cudnnTensorDescriptor_t c, const void* cx, const void* dcy,
    void* dcx, std::size_t weight_bytes, const void* weights, std::size_t work_bytes, void* work,
    std::size_t reserve_bytes, void* reserve) {
  constexpr auto call = "cudnnRNNBackwardData_v8";
  Network p;
  const auto loaded = load(p, call, rnn, x_descriptor, y_descriptor, h, c);
  if (loaded != CUDNN_STATUS_SUCCESS) return loaded;
  if (!p.has_c()) {
    cx = dcy = nullptr;
    dcx = nullptr;
  }
  return issue(call, handle, p, lengths,
               {{y, p.y_size()},
                {dy, p.y_size()},
                {dx, p.x_size(), true},
                {hx, p.state_size(), false, true},
                {dhy, p.state_size(), false, true},
                {dhx, p.state_size(), true, true},
                {cx, p.state_size(), false, true},
                {dcy, p.state_size(), false, true},
                {dcx, p.state_size(), true, true}},
               {weight_bytes, weights, work_bytes, work, reserve_bytes, reserve}, false,
               Network::kForData, [=]<class T>(const Recurrence<T>& recurrence, T) {
                 recurrence.backward_data(static_cast<const T*>(y), static_cast<const T*>(dy),
                                          static_cast<const T*>(hx), static_cast<const T*>(dhy),
                                          static_cast<const T*>(cx), static_cast<const T*>(dcy),
                                          static_cast<T*>(dx), static_cast<T*>(dhx),
                                          static_cast<T*>(dcx));
               });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const std::int32_t* lengths,
                                         cudnnRNNDataDescriptor_t x_descriptor, const void* x,
                                         cudnnTensorDescriptor_t h, const void* hx,
                                         cudnnRNNDataDescriptor_t y_descriptor, const void* y,
                                         std::size_t weight_bytes, void* gradients,
                                         std::size_t work_bytes, void* work,
                                         std::size_t reserve_bytes, void* reserve) {
  constexpr auto call = "cudnnRNNBackwardWeights_v8";
  Network p;
  const auto loaded = load(p, call, rnn, x_descriptor, y_descriptor, h, h);
  if (loaded != CUDNN_STATUS_SUCCESS) return loaded;
  if (mode != CUDNN_WGRAD_MODE_ADD) {
    return wrong(CUDNN_STATUS_NOT_SUPPORTED, call, ": gradients of weights can be added alone");
  }
  return issue(call, handle, p, lengths,
               {{x, p.x_size()}, {y, p.y_size()}, {hx, p.state_size(), false, true}},
               {weight_bytes, gradients, work_bytes, work, reserve_bytes, reserve}, true,
               Network::kForWeights, [=]<class T>(const Recurrence<T>& recurrence, T) {
                 recurrence.backward_weights(static_cast<const T*>(x), static_cast<const T*>(hx),
                                             static_cast<const T*>(y), gradients);
               });
}

}  // extern "C"

}  // namespace cudasim::dnn
