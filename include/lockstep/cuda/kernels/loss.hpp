// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/softmax.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/kernels/loss_kernels.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>
#include <lockstep/tensor/walk.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

// Losses: each row's by itself, then their sum in double; and the gradients, each element by
// itself. A row whose label is outside its classes has the loss NaN, and the host is told.
namespace lockstep::cuda {

using detail::Axis;

// The sum or the mean of the terms of `count` elements; of none the mean is NaN.
template <class Term>
void reduce_losses(detail::StreamState& stream, const SumOperands<typename Term::In>& in,
                   const View<typename Term::Out>& out, Reduction reduction, std::size_t count) {
  const Shape all{static_cast<std::int64_t>(count)};
  const auto walk = detail::make_walk<1>(all, {Shape{1}});
  launch_sum<Term>(stream, in, out, {}, walk,
                   reduction == Reduction::mean ? static_cast<double>(count) : 1);
}

template <class T>
struct ClassLossRows {
  detail::ClassLossCall<T> call;
  View<T> losses;
  View<IndexFault> fault;
  bool by_thread;

  std::size_t columns() const { return call.axis.count; }

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const Axis& axis = call.axis;
    const std::int64_t label = call.labels[row];
    const std::size_t first = detail::row_start(axis, row);
    const auto of = call.of_logits ? detail::RowsOf::cross_entropy : detail::RowsOf::nll_loss;
    if (!in_range(fault, of, label, row, axis.count)) {
      if (lanes.index == 0) losses[row] = static_cast<T>(NAN);
      for (std::size_t c = lanes.index; call.of_logits && c < axis.count; c += lanes.count) {
        call.probs[first + c * axis.inner] = static_cast<T>(NAN);  // backward reads it
      }
      return;
    }
    const T at_label = call.in[first + static_cast<std::size_t>(label) * axis.inner];
    T loss = -at_label;
    if (call.of_logits) {
      loss =
          softmax_row(call.in.data + first, call.probs.data + first, axis.count, axis.inner, lanes)
              .minus(at_label);
    }
    if (lanes.index == 0) losses[row] = loss;
  }
};

template <class T>
struct CudaCall<detail::ClassLossCall<T>> {
  using kernels = Kernels<ClassLossRows<T>, SumKernels<ValueTerm<T>>>;
  static void run(detail::StreamState& stream, const detail::ClassLossCall<T>& call) {
    const bool by_thread = !call.of_logits || call.axis.inner >= kLanes;
    const View<IndexFault> fault = IndexFaults::instance().of(stream);
    const auto launch_rows = [&](const View<T>& losses) {
      launch_kernel(stream, call.labels.size, ClassLossRows<T>{call, losses, fault, by_thread});
    };
    if (call.reduction == Reduction::none) return launch_rows(call.out);
    const ScratchOf<T> losses(stream, call.labels.size);
    launch_rows(losses.view());
    reduce_losses<ValueTerm<T>>(stream, {losses.const_view()}, call.out, call.reduction,
                                call.labels.size);
  }
};

template <class T>
struct ClassGradElements {
  detail::ClassGradCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Division outside = divided(i, call.axis.inner);
    const Division place = divided(outside.quotient, call.axis.count);
    const std::size_t row = place.quotient * call.axis.inner + outside.remainder;
    const bool chosen = call.labels[row] == static_cast<std::int64_t>(place.remainder);
    const detail::LossGradient<T> above(call.grad, call.reduction, call.labels.size);
    if (call.probs.size == 0) {
      call.out[i] = chosen ? -above[row] : T(0);
    } else {
      call.out[i] = above[row] * (chosen ? call.probs[i] - 1 : call.probs[i]);
    }
  }
};
template <class T>
struct CudaCall<detail::ClassGradCall<T>> : ElementCall<ClassGradElements<T>> {};

template <class T>
struct SquaredError {
  LOCKSTEP_HD T operator()(T a, T b) const { return (a - b) * (a - b); }
};

template <class T>
struct SquaredErrorTerm : DoubleTerm<T> {
  LOCKSTEP_HD static double at(const SumOperands<T>& in, std::int64_t offset, std::size_t) {
    return static_cast<double>(SquaredError<T>()(in.a.data[offset], in.b.data[offset]));
  }
};

template <class T>
struct CudaCall<detail::MseLossCall<T>> {
  using Each = detail::BinaryKernel<T, T, SquaredError<T>>;
  using kernels = Kernels<Each, SumKernels<SquaredErrorTerm<T>>>;
  static void run(detail::StreamState& stream, const detail::MseLossCall<T>& call) {
    if (call.reduction == Reduction::none) {
      launch_kernel(stream, call.out.size, Each{call.a, call.b, call.out, {}});
    } else {
      reduce_losses<SquaredErrorTerm<T>>(stream, {call.a, call.b}, call.out, call.reduction,
                                         call.a.size);
    }
  }
};

template <class T>
struct MseGradElements {
  detail::MseGradCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const detail::LossGradient<T> above(call.grad, call.reduction, call.a.size);
    call.out[i] = 2 * above[i] * (call.a[i] - call.b[i]);
  }
};

template <class T>
struct CudaCall<detail::MseGradCall<T>> : ElementCall<MseGradElements<T>> {};

using LossCalls = ForFloating<detail::ClassLossCall, detail::ClassGradCall, detail::MseLossCall,
                              detail::MseGradCall>;

}  // namespace lockstep::cuda
