// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/libraries/conv_plan.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/libraries/rnn_plan.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/cuda/memory/transfers.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/ops/kernels/rnn_cells.hpp>
#include <lockstep/ops/rnn/rnn_calls.hpp>
#include <lockstep/tensor/fill.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

// A recurrent layer in one direction by cuDNN.
//
// The library has no layer that goes only backwards through the sequence: it is given the sequence
// in the opposite order. Its backward destroys what it reads of the forward, so it gets a copy: a
// graph that is kept may run backward again.
namespace lockstep::cuda {

template <class T>
struct ReverseSteps {
  View<const T> in;
  View<T> out;
  std::size_t step;  // elements
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Division at = divided(i, step);
    const std::size_t steps = divided(in.size, step).quotient;
    out[(steps - 1 - at.quotient) * step + at.remainder] = in[i];
  }
};

// A sequence in the order in which the library computes it.
template <class T>
class ComputedOrder {
 public:
  ComputedOrder(CudaStream& on, const detail::RecurrentGeometry& g)
      : on_(on), length_(static_cast<std::size_t>(g.length)), reverse_(g.reverse) {}

  // What the library is to read: the sequence, or its steps in the opposite order.
  const T* input(const View<const T>& sequence) {
    if (!reverse_) return sequence.data;
    const View<T> reversed = room(sequence.size);
    reverse(sequence, reversed);
    return reversed.data;
  }
  // Where the library is to write; `finish` brings it to `sequence`.
  T* output(const View<T>& sequence) {
    if (!reverse_) return sequence.data;
    out_ = sequence;
    return room(sequence.size).data;
  }
  void finish() {
    if (out_.size > 0) reverse(reversed_->const_view(), out_);
  }

 private:
  View<T> room(std::size_t size) { return reversed_.emplace(on_, size).view(); }
  void reverse(const View<const T>& in, const View<T>& out) {
    launch_kernel(on_, in.size, ReverseSteps<T>{in, out, in.size / length_});
  }

  CudaStream& on_;
  const std::size_t length_;
  const bool reverse_;
  View<T> out_;
  std::optional<ScratchOf<T>> reversed_;
};

// Copies the runs of a layer's parameters to their places in the library's weight space; those of
// their gradients, which are not const, from there.
template <class T>
void copy_runs(const CudaStream& on, const RnnPlan& plan,
               const detail::RecurrentParameters<T>& parameters, void* space) {
  const std::array<View<T>, 4> all{parameters.ih, parameters.hh, parameters.bias_ih,
                                   parameters.bias_hh};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const ParameterRun& run : plan.runs[i]) {
      T* const own = all[i].data + run.from;
      std::byte* const place = static_cast<std::byte*>(space) + run.to;
      if constexpr (std::is_const_v<T>) {
        copy_direct(place, own, {run.size * sizeof(T)}, on);
      } else {
        copy_direct(own, place, {run.size * sizeof(T)}, on);
      }
    }
  }
}

template <class T, class Cell>
struct CudaCall<detail::RecurrentReserve<T, Cell>> {
  using kernels = Kernels<>;

  static void run(detail::StreamState& stream, const detail::RecurrentReserve<T, Cell>& call) {
    *call.bytes = 0;
    *call.math = conv_math(cudnn_type<T>);
    if (!call.g.training) return;
    auto& on = static_cast<CudaStream&>(stream);
    const CudnnOnStream cudnn(on);
    detail::RecurrentGeometry g = call.g;
    g.math = *call.math;
    *call.bytes =
        cudnn.plan<RnnPlan>(rnn_key<T, Cell>(g, call.has_bias_ih, call.has_bias_hh)).reserve;
  }
};

template <class T, class Cell>
struct CudaCall<detail::RecurrentForward<T, Cell>> {
  using kernels = Kernels<ReverseSteps<T>>;

  static void run(detail::StreamState& stream, const detail::RecurrentForward<T, Cell>& call) {
    auto& on = static_cast<CudaStream&>(stream);
    const CudnnOnStream cudnn(on);
    const RnnKey key = rnn_key<T, Cell>(call.g, call.weights.bias_ih.data != nullptr,
                                        call.weights.bias_hh.data != nullptr);
    const auto& plan = cudnn.plan<RnnPlan>(key);
    const GpuScratch weights(on, plan.weights);
    copy_runs(on, plan, call.weights, weights.data());
    const GpuScratch workspace(on, plan.workspace);
    ComputedOrder<T> x(on, call.g);
    ComputedOrder<T> y(on, call.g);
    check(cudnnRNNForward(cudnn.handle(), plan.rnn.get(), key.mode, nullptr, plan.x.get(),
                          x.input(call.x), plan.y.get(), y.output(call.y), plan.state.get(),
                          call.h0.data, call.h.data, plan.state.get(), call.c0.data, call.c.data,
                          plan.weights, weights.data(), plan.workspace, workspace.data(),
                          call.reserve.size, call.reserve.data),
          "cudnnRNNForward", on.device());
    y.finish();
  }
};

template <class T, class Cell>
struct CudaCall<detail::RecurrentBackward<T, Cell>> {
  using kernels = Kernels<ReverseSteps<T>, detail::FillKernel<T>>;
  using Call = detail::RecurrentBackward<T, Cell>;

  static void run(detail::StreamState& stream, const Call& call) {
    auto& on = static_cast<CudaStream&>(stream);
    const CudnnOnStream cudnn(on);
    const RnnKey key = rnn_key<T, Cell>(call.g, call.weights.bias_ih.data != nullptr,
                                        call.weights.bias_hh.data != nullptr);
    const auto& plan = cudnn.plan<RnnPlan>(key);
    const GpuScratch workspace(on, plan.workspace);
    const GpuScratch reserve(on, call.reserve.size);
    copy_direct(reserve.data(), call.reserve.data, {call.reserve.size}, on);
    ComputedOrder<T> y(on, call.g);
    const T* const y_data = y.input(call.y);
    give_data_gradients(on, cudnn, plan, call, y_data, workspace.data(), reserve.data());
    if (call.grad_weights.ih.data == nullptr) return;

    const ScratchOf<T> space(on, (plan.weights + sizeof(T) - 1) / sizeof(T));
    zero(on, space.view());  // the library adds
    ComputedOrder<T> x(on, call.g);
    check(cudnnRNNBackwardWeights_v8(cudnn.handle(), plan.rnn.get(), CUDNN_WGRAD_MODE_ADD, nullptr,
                                     plan.x.get(), x.input(call.x), plan.state.get(), call.h0.data,
                                     plan.y.get(), y_data, plan.weights, space.view().data,
                                     plan.workspace, workspace.data(), call.reserve.size,
                                     reserve.data()),
          "cudnnRNNBackwardWeights_v8", on.device());
    copy_runs(on, plan, call.grad_weights, space.view().data);
  }

 private:
  static void zero(CudaStream& on, const View<T>& out) {
    launch_kernel(on, out.size, detail::FillKernel<T>{out, T(0)});
  }

  // Computes the gradients of all but the parameters. It comes before those of the parameters.
  static void give_data_gradients(CudaStream& on, const CudnnOnStream& cudnn, const RnnPlan& plan,
                                  const Call& call, const T* y, void* workspace, void* reserve) {
    const GpuScratch weights(on, plan.weights);
    copy_runs(on, plan, call.weights, weights.data());
    ComputedOrder<T> grad_y(on, call.g);
    ComputedOrder<T> grad_x(on, call.g);
    std::optional<ScratchOf<T>> none;      // the library takes no null for grad_y,
    std::optional<ScratchOf<T>> unwanted;  // nor for grad_x
    const T* from_above = nullptr;
    if (call.grad_y.size > 0) {
      from_above = grad_y.input(call.grad_y);
    } else {
      zero(on, none.emplace(on, call.y.size).view());
      from_above = none->view().data;
    }
    T* const to_x = call.grad_x.size > 0 ? grad_x.output(call.grad_x)
                                         : unwanted.emplace(on, call.x.size).view().data;
    check(cudnnRNNBackwardData_v8(
              cudnn.handle(), plan.rnn.get(), nullptr, plan.y.get(), y, from_above, plan.x.get(),
              to_x, plan.state.get(), call.h0.data, call.grad_h.data, call.grad_h0.data,
              plan.state.get(), call.c0.data, call.grad_c.data, call.grad_c0.data, plan.weights,
              weights.data(), plan.workspace, workspace, call.reserve.size, reserve),
          "cudnnRNNBackwardData_v8", on.device());
    grad_x.finish();
  }
};

template <class T, class... Cell>
struct RecurrentCalls
    : Kernels<detail::RecurrentReserve<T, Cell>..., detail::RecurrentForward<T, Cell>...,
              detail::RecurrentBackward<T, Cell>...> {};
template <class T>
struct RecurrentCallsOf
    : RecurrentCalls<T, detail::TanhCell, detail::ReluCell, detail::LstmCell, detail::GruCell> {};

using RnnCalls = ForFloating<RecurrentCallsOf>;

}  // namespace lockstep::cuda
