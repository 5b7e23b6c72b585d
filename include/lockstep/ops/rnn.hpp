// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/composed_grads.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/ops/rnn/rnn_library.hpp>
#include <lockstep/ops/rnn/rnn_steps.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// A recurrent layer in one direction as one operation. On a GPU one call of a library computes it.
// On the host each time step takes one product and one kernel, forward and backward; the input's
// contribution to the gates, and the gradients of input and weights, take one product for each run
// of time steps. Sizes that the library does not take use elementary operations.
namespace lockstep::detail {

// Takes the arguments of RecurrentArguments, in f32 or f64. The results are y [length, batch,
// width], and copies of the last h and, if the cell has one, c.
template <class Cell>
struct RecurrentOp {
  using A = RecurrentArguments;
  static constexpr const char* name = Cell::name;

  bool reverse;  // from the last time step to the first
  std::array<Saved, A::count> arguments = {};
  Saved y = {};
  Tensor kept = {};    // for backward: [length, batch, kKept · width], or what the library keeps
  Tensor states = {};  // c after each step
  int math = 0;        // the library's code for how it computes
  TimeRuns time = {};
  std::int64_t batch = 0;
  std::int64_t width = 0;

  std::vector<Tensor> forward(const Tensor& x, const Tensor& h0, const Tensor& c0,
                              const Tensor& weight_ih, const Tensor& weight_hh,
                              const Tensor& bias_ih, const Tensor& bias_hh) {
    arguments = {x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh};
    if (!x.device().is_cpu()) {
      const bool training = autograd_state().saving;
      const RecurrentLibrary<Cell> library({{x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh}},
                                           reverse, training, current_stream(x.device()));
      std::vector<Tensor> results = library.forward(kept, math);
      y = Saved::output(results[0]);
      return results;
    }
    time = TimeRuns(x.sizes(), reverse);
    batch = x.sizes()[1];
    width = weight_hh.sizes()[1];
    const Tensor rows = packed(x);
    const Tensor h_start = packed(h0);
    const Tensor c_start = packed_or_undefined(c0);
    const Tensor bias = packed_or_undefined(bias_hh);
    const Tensor input_bias = packed_or_undefined(bias_ih);
    const MatrixArgument matrix = as_matrix(weight_hh);
    const MatrixArgument input_matrix = as_matrix(weight_ih);
    const Stream stream = current_stream(x.device());
    const Dtype dtype = x.dtype();
    const Tensor result = empty_on(stream, {time.length, batch, width}, dtype);
    kept = empty_on(stream, {time.length, batch, columns(Cell::kKept)}, dtype);
    // If the applied gates are what is kept, they overwrite what they are computed from.
    constexpr bool kInPlace = Cell::kKept == Cell::kGates;
    const Tensor gates =
        kInPlace ? kept : empty_on(stream, {time.longest(), batch, columns(Cell::kGates)}, dtype);
    if constexpr (Cell::kHasC) states = empty_on(stream, result.sizes(), dtype);
    const Tensor from_hidden = empty_on(stream, {batch, columns(Cell::kGates)}, dtype);
    dispatch_floating(dtype, name, [&]<class T>(T) {
      const Steps<const T> from_input(input<T>(gates), gates.sizes()[0]);
      const Steps<T> to_gates(output<T>(gates, stream), gates.sizes()[0]);
      const Steps<const T> x_at(input<T>(rows), time.length);
      const Steps<T> keep(output<T>(kept, stream), time.length);
      const Steps<T> h(output<T>(result, stream), time.length);
      const Steps<T> c(optional_output<T>(states, stream), time.length);
      Gemm<T> product = rows_times<T>(matrix, true, batch, columns(Cell::kGates), width);
      product.bias = optional_input<T>(bias);
      product.c = output<T>(from_hidden, stream);
      const RepeatedGemm<T> multiply(stream, product);
      Gemm<T> of_input = rows_times<T>(input_matrix, true, time.shortest() * batch,
                                       columns(Cell::kGates), x.sizes()[2]);
      of_input.bias = optional_input<T>(input_bias);
      const RepeatedGemm<T> multiply_input(stream, of_input);
      for (std::int64_t i = 0; i < time.runs; ++i) {
        const TimeRuns::Run run = time.run(i);
        const std::int64_t start = kInPlace ? run.first : 0;
        of_input.a = x_at(run.first, run.count());
        of_input.c = to_gates(start, run.count());
        of_input.m = run.count() * batch;
        multiply_input(of_input);
        for (std::int64_t step = run.begin; step < run.end; ++step) {
          const std::int64_t t = time.at(step);
          product.a = before(step, input<T>(h_start), h);
          multiply(product);
          launch_on_host(stream, RecurrentStep<T, Cell>{
                                     from_input(start + t - run.first), input<T>(from_hidden),
                                     product.a, before(step, optional_input<T>(c_start), c),
                                     keep(t), h(t), c(t), static_cast<std::size_t>(width)});
        }
      }
    });
    y = Saved::output(result);
    std::vector<Tensor> results{result, last_of(result)};
    if constexpr (Cell::kHasC) results.push_back(last_of(states));
    return results;
  }

  std::array<Tensor, A::count> backward(const Backward& saved,
                                        const std::vector<Tensor>& grads) const {
    const bool recorded = is_grad_enabled();
    const Stream stream = current_stream(kept.device());
    if (!recorded && stream.device().is_cpu()) return backward_through_time(saved, grads, stream);
    RecurrentArguments all;
    for (std::size_t i = 0; i < A::count; ++i) all.tensors[i] = saved(arguments[i]);
    if (recorded) {
      return composed_grads(all.tensors, grads, [&](const auto& aliases) {
        return recurrent_composed<Cell>({aliases}, reverse);
      });
    }
    const RecurrentLibrary<Cell> library(all, reverse, true, stream);
    return library.backward(saved(y), kept, math, grads,
                            [&](std::size_t i) { return saved.needs(i); });
  }

 private:
  std::array<Tensor, A::count> backward_through_time(const Backward& saved,
                                                     const std::vector<Tensor>& grads,
                                                     const Stream& stream) const {
    const Tensor result = saved(y);
    const Tensor x = saved.needs(A::weight_ih) ? packed(saved(arguments[A::x])) : Tensor();
    const Tensor h_start = packed(saved(arguments[A::h0]));
    const Tensor c_start = Cell::kHasC ? packed(saved(arguments[A::c0])) : Tensor();
    const Tensor grad_y = packed_or_undefined(grads[0]);
    const Tensor weight = saved(arguments[A::weight_hh]);
    const Tensor input_weight = saved.needs(A::x) ? saved(arguments[A::weight_ih]) : Tensor();
    const MatrixArgument matrix = as_matrix(weight);
    const std::int64_t features = x.defined()              ? x.sizes()[2]
                                  : input_weight.defined() ? input_weight.sizes()[1]
                                                           : 0;
    const Dtype dtype = result.dtype();

    // The gradients of the input's and the state's contribution to the gates of a run.
    const Shape gates{time.longest(), batch, columns(Cell::kGates)};
    const Tensor grad_input = empty_on(stream, gates, dtype);
    const Tensor grad_hidden = Cell::kSplits ? empty_on(stream, gates, dtype) : grad_input;
    std::array<Tensor, A::count> out;
    out[A::h0] = start_of(grads[1], result.options());
    if constexpr (Cell::kHasC) out[A::c0] = start_of(grads[2], result.options());
    const auto make = [&](std::size_t which, const Shape& shape) {
      if (saved.needs(which)) out[which] = empty_on(stream, shape, dtype);
    };
    make(A::x, {time.length, batch, features});
    make(A::weight_ih, {columns(Cell::kGates), features});
    make(A::weight_hh, weight.sizes());
    make(A::bias_ih, {time.runs, columns(Cell::kGates)});  // one for each run at first
    if (Cell::kSplits || !saved.needs(A::bias_ih))
      make(A::bias_hh, {time.runs, columns(Cell::kGates)});

    dispatch_floating(dtype, name, [&]<class T>(T) {
      const Steps<const T> keep(input<T>(kept), time.length);
      const Steps<const T> h(input<T>(result), time.length);
      const Steps<const T> c(optional_input<T>(states), time.length);
      const Steps<const T> from_above(optional_input<T>(grad_y), time.length);
      const Steps<const T> x_at(optional_input<T>(x), time.length);
      const Steps<T> grad_x(optional_output<T>(out[A::x], stream), time.length);
      const Steps<T> to_input(output<T>(grad_input, stream), gates[0]);
      const Steps<T> to_hidden(optional_output<T>(Cell::kSplits ? grad_hidden : Tensor(), stream),
                               gates[0]);
      const Steps<const T> of_input(input<T>(grad_input), gates[0]);
      const Steps<const T> of_hidden(input<T>(grad_hidden), gates[0]);
      const View<T> grad_h = output<T>(out[A::h0], stream);
      const View<T> grad_c = optional_output<T>(out[A::c0], stream);
      Gemm<T> product = rows_times<T>(matrix, false, batch, width, columns(Cell::kGates));
      product.c = grad_h;
      product.beta = 1;
      const RepeatedGemm<T> multiply(stream, product);
      Gemm<T> to_x{};
      std::optional<MatrixArgument> input_matrix;
      std::optional<RepeatedGemm<T>> multiply_x;
      if (saved.needs(A::x)) {
        to_x = rows_times<T>(input_matrix.emplace(as_matrix(input_weight)), false,
                             time.shortest() * batch, features, columns(Cell::kGates));
        multiply_x.emplace(stream, to_x);
      }

      for (std::int64_t i = time.runs; i-- > 0;) {
        const TimeRuns::Run run = time.run(i);
        for (std::int64_t step = run.end; step-- > run.begin;) {
          const std::int64_t t = time.at(step);
          launch_on_host(stream, RecurrentGradStep<T, Cell>{
                                     keep(t), before(step, input<T>(h_start), h),
                                     before(step, optional_input<T>(c_start), c), h(t), c(t),
                                     from_above(t), grad_h, grad_c, to_input(t - run.first),
                                     to_hidden(t - run.first), static_cast<std::size_t>(width)});
          if (step == 0 && !saved.needs(A::h0)) break;
          product.a = of_hidden(t - run.first);
          multiply(product);
        }
        const View<const T> input_rows = of_input(0, run.count());
        if (multiply_x) {
          to_x.a = input_rows;
          to_x.c = grad_x(run.first, run.count());
          to_x.m = run.count() * batch;
          (*multiply_x)(to_x);
        }
        if (saved.needs(A::weight_ih)) {
          add_weight_gradient(stream, out[A::weight_ih], input_rows, x_at(run.first, run.count()),
                              run.count() * batch, i == time.runs - 1);
        }
        if (saved.needs(A::weight_hh)) {
          add_hidden_gradient(stream, out[A::weight_hh], run, of_hidden, input<T>(h_start), h);
        }
        const auto add_bias = [&](const Tensor& sums, View<const T> gates_of_run) {
          if (!sums.defined()) return;
          const Steps<T> sum(output<T>(sums, stream), time.runs);
          launch_call(stream,
                      ChannelSumCall<T>{gates_of_run, sum(i),
                                        Axis({run.count() * batch, columns(Cell::kGates)}, 1)});
        };
        add_bias(out[A::bias_ih], input_rows);
        add_bias(out[A::bias_hh], of_hidden(0, run.count()));
      }
    });
    for (const std::size_t i : {A::bias_ih, A::bias_hh}) {
      if (out[i].defined()) out[i] = channel_sum(out[i], 1);
    }
    if (saved.needs(A::bias_hh) && !out[A::bias_hh].defined()) {
      out[A::bias_hh] = out[A::bias_ih].clone();
    }
    if (!saved.needs(A::h0)) out[A::h0] = {};
    if (!saved.needs(A::c0)) out[A::c0] = {};
    return out;
  }

  // Adds the rows of a run to the gradient of weight_hh. The very first step starts from h0, others
  // from the y before.
  template <class T>
  void add_hidden_gradient(const Stream& stream, const Tensor& gradient, const TimeRuns::Run& run,
                           const Steps<const T>& gates, View<const T> h_start,
                           const Steps<const T>& h) const {
    const std::int64_t first = run.begin == 0 ? 1 : 0;
    const std::int64_t others = run.count() - first;
    if (others > 0) {
      const std::int64_t t = time.reverse ? run.first : run.first + first;
      add_weight_gradient(stream, gradient, gates(t - run.first, others),
                          h(time.reverse ? t + 1 : t - 1, others), others * batch,
                          run.end == time.length);
    }
    if (first > 0) {
      add_weight_gradient(stream, gradient, gates(time.at(0) - run.first), h_start, batch,
                          time.length == 1);
    }
  }

  std::int64_t columns(std::size_t n) const { return static_cast<std::int64_t>(n) * width; }

  // The state from which step number `step` starts.
  template <class T, class U>
  View<const T> before(std::int64_t step, View<const T> first, const Steps<U>& steps) const {
    if (step == 0) return first;
    const View<U> found = steps(time.at(step - 1));
    return {found.data, found.size};
  }

  Tensor last_of(const Tensor& steps) const {
    const Tensor last = part_of(steps, 0, time.at(time.length - 1), 1);
    return copy_as(last, steps.options()).reshape({batch, width});
  }

  // The gradient of the last state, in memory that can be overwritten.
  Tensor start_of(const Tensor& grad, const TensorOptions& options) const {
    return grad.defined() ? copy_as(grad, options) : zeros({batch, width}, options);
  }
};

// Throws unless the arguments match the input in dtype, device and shape.
template <class Cell>
void check_recurrent(const RecurrentArguments& arguments) {
  using A = RecurrentArguments;
  const Tensor& x = arguments[A::x];
  const Tensor& matrix = arguments[A::weight_hh];
  check<ShapeError>(x.dim() == 3 && x.size(0) > 0 && matrix.dim() == 2, Cell::name,
                    ": expected an input of shape [length, batch, features] and a matrix "
                    "weight_hh, got shapes ",
                    x.sizes(), " and ", matrix.sizes());
  const std::int64_t width = matrix.size(1);
  const std::int64_t rows = static_cast<std::int64_t>(Cell::kGates) * width;
  const Shape states{x.size(1), width};
  const std::array<Shape, A::count> shapes{
      x.sizes(),          states,      states,     Shape{rows, x.size(2)},
      Shape{rows, width}, Shape{rows}, Shape{rows}};
  constexpr std::array<const char*, A::count> names{"the input", "h_0",     "c_0",    "weight_ih",
                                                    "weight_hh", "bias_ih", "bias_hh"};
  for (std::size_t i = 0; i < A::count; ++i) {
    const Tensor& tensor = arguments.tensors[i];
    if (!tensor.defined()) continue;
    check_same_kind(Cell::name, names[A::x], x, names[i], tensor);
    check<ShapeError>(tensor.sizes() == shapes[i], Cell::name, ": expected ", names[i],
                      " of shape ", shapes[i], " for an input of shape ", x.sizes(), ", got ",
                      tensor.sizes());
  }
}

// Runs a cell over a sequence; undefined initial states are zeros.
//
// All are of one device and floating-point dtype, unless autocast is on. Half precision is computed
// in f32, the states between steps included, and the results are rounded once.
template <class Cell>
std::vector<Tensor> recurrent(RecurrentArguments arguments, bool reverse) {
  using A = RecurrentArguments;
  auto& tensors = arguments.tensors;
  // If autocast does not convert all of them they cannot match, and the error should name what was
  // given.
  const auto converts = [](const Tensor& x) { return !x.defined() || autocast_converts(x); };
  if (is_autocast_enabled() && all_of(tensors, converts)) {
    for (Tensor& tensor : tensors) tensor = autocast_argument(tensor, autocast_dtype());
  }
  const AutocastGuard off(false);
  check_recurrent<Cell>(arguments);
  const Dtype dtype = tensors[A::x].dtype();
  if (is_half_precision(dtype)) {
    for (Tensor& tensor : tensors) {
      if (tensor.defined()) tensor = tensor.to(Dtype::f32);
    }
  }
  const Tensor& x = tensors[A::x];
  for (const auto which : {A::h0, A::c0}) {
    if (tensors[which].defined() || (which == A::c0 && !Cell::kHasC)) continue;
    tensors[which] = zeros({x.size(1), tensors[A::weight_hh].size(1)}, x.options());
  }
  const bool composed =
      !x.device().is_cpu() && !has_recurrent_library(x, tensors[A::weight_hh].size(0));
  std::vector<Tensor> results =
      composed ? recurrent_composed<Cell>(arguments, reverse)
               : lockstep::apply(RecurrentOp<Cell>{reverse}, x, tensors[A::h0], tensors[A::c0],
                                 tensors[A::weight_ih], tensors[A::weight_hh], tensors[A::bias_ih],
                                 tensors[A::bias_hh]);
  for (Tensor& result : results) result = result.to(dtype);
  return results;
}

// What the recurrent layers need to know about a kind of cell. Only definitions of layers include
// this, since it compiles what a cell computes.
struct RecurrentCell {
  const char* name;
  std::vector<Tensor> (*over_sequence)(RecurrentArguments, bool reverse);  // y, h and, if any, c
};

template <class Cell>
inline constexpr RecurrentCell kRecurrentCell{Cell::name, recurrent<Cell>};

}  // namespace lockstep::detail
