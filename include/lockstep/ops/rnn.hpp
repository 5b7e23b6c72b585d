// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/ops/rnn/rnn_library.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/half.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// A recurrent layer in one direction as one operation. A GPU's library computes it in one call. On
// the host one product computes what the input gives to the gates at all time steps; then each step
// takes one product and one kernel, forward as backward. The gradients of the weights take one
// product, and for weight_hh another one for the first step.
namespace lockstep::detail {

// A contiguous tensor [length, rows, columns] as its time steps.
template <class T>
class Steps {
 public:
  Steps(View<T> all, std::int64_t length)
      : all_(all), each_(all.size / static_cast<std::size_t>(length)) {}

  // `count` steps from number `t` on; empty if the tensor is.
  View<T> operator()(std::int64_t t, std::int64_t count = 1) const {
    if (all_.size == 0) return {};
    return {all_.data + static_cast<std::size_t>(t) * each_,
            static_cast<std::size_t>(count) * each_};
  }

 private:
  View<T> all_;
  std::size_t each_;
};

// The arguments are those of RecurrentArguments, in f32 or f64; the results y [length, batch,
// width], and copies of the last h and, if the cell has one, c.
template <class Cell>
struct RecurrentOp {
  using A = RecurrentArguments;
  static constexpr const char* name = Cell::name;

  bool reverse;  // from the last time step to the first
  bool by_library = false;
  std::array<Saved, A::count> arguments = {};
  Saved y = {};
  Tensor kept = {};    // [length, batch, kKept · width], or what the library keeps for backward
  Tensor states = {};  // c after each step
  int math = 0;        // how the library computes, in its own numbers
  std::int64_t length = 0;
  std::int64_t batch = 0;
  std::int64_t width = 0;

  std::vector<Tensor> forward(const Tensor& x, const Tensor& h0, const Tensor& c0,
                              const Tensor& weight_ih, const Tensor& weight_hh,
                              const Tensor& bias_ih, const Tensor& bias_hh) {
    arguments = {x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh};
    length = x.sizes()[0];
    batch = x.sizes()[1];
    width = weight_hh.sizes()[1];
    by_library = has_recurrent_library(x, weight_hh.sizes()[0]);
    if (by_library) {
      const bool training = autograd_state().saving;
      const RecurrentLibrary<Cell> library({{x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh}},
                                           reverse, training, current_stream(x.device()));
      std::vector<Tensor> results = library.forward(kept, math);
      y = Saved::output(results[0]);
      return results;
    }
    const Tensor gates = linear(x, weight_ih, bias_ih);
    const Tensor h_start = packed(h0);
    const Tensor c_start = Cell::kHasC ? packed(c0) : Tensor();
    const Tensor bias = bias_hh.defined() ? packed(bias_hh) : bias_hh;
    const MatrixArgument matrix = as_matrix(weight_hh);

    const Stream stream = current_stream(x.device());
    const Dtype dtype = x.dtype();
    const Tensor result = empty_on(stream, {length, batch, width}, dtype);
    // Gates that are kept as they are applied take the place of what they are made of.
    kept = Cell::kKept == Cell::kGates
               ? gates
               : empty_on(stream, {length, batch, columns(Cell::kKept)}, dtype);
    if constexpr (Cell::kHasC) states = empty_on(stream, result.sizes(), dtype);
    const Tensor from_hidden = empty_on(stream, {batch, columns(Cell::kGates)}, dtype);
    dispatch_floating(dtype, name, [&]<class T>(T) {
      const Steps<const T> from_input(input<T>(gates), length);
      const Steps<T> keep(output<T>(kept, stream), length);
      const Steps<T> h(output<T>(result, stream), length);
      const Steps<T> c(optional_output<T>(states, stream), length);
      Gemm<T> product{.a = {},
                      .b = strided_input<T>(matrix.tensor()),
                      .bias = optional_input<T>(bias),
                      .c = output<T>(from_hidden, stream),
                      .m = batch,
                      .n = columns(Cell::kGates),
                      .k = width,
                      .lda = width,
                      .ldb = matrix.ld,
                      .ldc = columns(Cell::kGates)};
      product.trans_b = !matrix.transposed;
      const RepeatedGemm<T> multiply(stream, product);
      for (std::int64_t step = 0; step < length; ++step) {
        const std::int64_t t = at(step);
        product.a = before(step, input<T>(h_start), h);
        multiply(product);
        launch(stream, units(),
               RecurrentKernel<T, Cell>{from_input(t), input<T>(from_hidden), product.a,
                                        before(step, optional_input<T>(c_start), c), keep(t), h(t),
                                        c(t), static_cast<std::size_t>(width)});
      }
    });
    y = Saved::output(result);
    std::vector<Tensor> results{result, last_of(result, stream)};
    if constexpr (Cell::kHasC) results.push_back(last_of(states, stream));
    return results;
  }

  std::array<Tensor, A::count> backward(const Backward& saved,
                                        const std::vector<Tensor>& grads) const {
    if (is_grad_enabled()) {
      RecurrentArguments all;
      for (std::size_t i = 0; i < A::count; ++i) all.tensors[i] = saved(arguments[i]);
      return recurrent_composed_grads<Cell>(all, reverse, grads);
    }
    const Stream stream = current_stream(kept.device());
    if (by_library) {
      RecurrentArguments all;
      for (std::size_t i = 0; i < A::count; ++i) all.tensors[i] = saved(arguments[i]);
      const RecurrentLibrary<Cell> library(all, reverse, true, stream);
      return library.backward(saved(y), kept, math, grads,
                              [&](std::size_t i) { return saved.needs(i); });
    }
    const Gradients found = backward_through_time(saved, grads, stream);
    const Tensor to_input = found.to_input.reshape({length * batch, columns(Cell::kGates)});
    std::array<Tensor, A::count> out;
    if (saved.needs(A::x)) {
      const Tensor weight = saved(arguments[A::weight_ih]);
      out[A::x] = mm(to_input, weight).reshape({length, batch, weight.size(1)});
    }
    if (saved.needs(A::h0)) out[A::h0] = found.h;
    if (saved.needs(A::c0)) out[A::c0] = found.c;
    if (saved.needs(A::weight_ih)) {
      const Tensor x = saved(arguments[A::x]);
      out[A::weight_ih] = mm(to_input, x.reshape({length * batch, x.size(2)}), true, false);
    }
    if (saved.needs(A::weight_hh)) out[A::weight_hh] = weight_gradient(saved, found.to_hidden);
    if (saved.needs(A::bias_ih)) out[A::bias_ih] = channel_sum(found.to_input, 2);
    if (saved.needs(A::bias_hh)) {
      out[A::bias_hh] = Cell::kSplits || !out[A::bias_ih].defined()
                            ? channel_sum(found.to_hidden, 2)
                            : out[A::bias_ih].clone();
    }
    return out;
  }

 private:
  struct Gradients {
    Tensor to_input;   // of what the input gave to the gates, at all time steps
    Tensor to_hidden;  // of what the state gave
    Tensor h;          // of the first state
    Tensor c;
  };

  Gradients backward_through_time(const Backward& saved, const std::vector<Tensor>& grads,
                                  const Stream& stream) const {
    const Tensor result = saved(y);
    const Tensor h_start = packed(saved(arguments[A::h0]));
    const Tensor c_start = Cell::kHasC ? packed(saved(arguments[A::c0])) : Tensor();
    const Tensor grad_y = grads[0].defined() ? packed(grads[0]) : grads[0];
    const Tensor weight = saved(arguments[A::weight_hh]);
    const MatrixArgument matrix = as_matrix(weight);

    const Dtype dtype = result.dtype();
    const Shape gates{length, batch, columns(Cell::kGates)};
    Gradients found;
    found.to_input = empty_on(stream, gates, dtype);
    found.to_hidden = Cell::kSplits ? empty_on(stream, gates, dtype) : found.to_input;
    found.h = start_of(grads[1], stream, dtype);
    if constexpr (Cell::kHasC) found.c = start_of(grads[2], stream, dtype);
    dispatch_floating(dtype, name, [&]<class T>(T) {
      const Steps<const T> keep(input<T>(kept), length);
      const Steps<const T> h(input<T>(result), length);
      const Steps<const T> c(optional_input<T>(states), length);
      const Steps<const T> from_above(optional_input<T>(grad_y), length);
      const Steps<T> to_input(output<T>(found.to_input, stream), length);
      const Steps<T> to_hidden(
          optional_output<T>(Cell::kSplits ? found.to_hidden : Tensor(), stream), length);
      const Steps<const T> to_product(input<T>(found.to_hidden), length);
      const View<T> grad_h = output<T>(found.h, stream);
      const View<T> grad_c = optional_output<T>(found.c, stream);
      Gemm<T> product{.a = {},
                      .b = strided_input<T>(matrix.tensor()),
                      .bias = {},
                      .c = grad_h,
                      .m = batch,
                      .n = width,
                      .k = columns(Cell::kGates),
                      .lda = columns(Cell::kGates),
                      .ldb = matrix.ld,
                      .ldc = width};
      product.trans_b = matrix.transposed;
      product.beta = 1;
      const RepeatedGemm<T> multiply(stream, product);
      for (std::int64_t step = length; step-- > 0;) {
        const std::int64_t t = at(step);
        launch(stream, units(),
               RecurrentGradKernel<T, Cell>{keep(t), before(step, input<T>(h_start), h),
                                            before(step, optional_input<T>(c_start), c), h(t), c(t),
                                            from_above(t), grad_h, grad_c, to_input(t),
                                            to_hidden(t), static_cast<std::size_t>(width)});
        if (step == 0 && !saved.needs(A::h0)) break;
        product.a = to_product(t);
        multiply(product);
      }
    });
    return found;
  }

  // One product for the time step that starts from h0, and one for all others, which start from
  // the y before.
  Tensor weight_gradient(const Backward& saved, const Tensor& to_hidden) const {
    const auto rows = [this](const Tensor& tensor, std::int64_t start, std::int64_t count) {
      return part_of(tensor, 0, start, count).reshape({count * batch, tensor.size(2)});
    };
    Tensor sum = mm(rows(to_hidden, at(0), 1), saved(arguments[A::h0]), true, false);
    if (length == 1) return sum;
    return sum.add_(mm(rows(to_hidden, reverse ? 0 : 1, length - 1),
                       rows(saved(y), reverse ? 1 : 0, length - 1), true, false));
  }

  std::int64_t columns(std::size_t n) const { return static_cast<std::int64_t>(n) * width; }
  std::size_t units() const { return static_cast<std::size_t>(batch * width); }
  // The time step that is computed as number `step`.
  std::int64_t at(std::int64_t step) const { return reverse ? length - 1 - step : step; }

  template <class T>
  static View<T> optional_output(const Tensor& tensor, const Stream& stream) {
    return tensor.defined() ? output<T>(tensor, stream) : View<T>{};
  }

  // The state that step number `step` starts from.
  template <class T, class U>
  View<const T> before(std::int64_t step, View<const T> first, const Steps<U>& steps) const {
    if (step == 0) return first;
    const View<U> found = steps(at(step - 1));
    return {found.data, found.size};
  }

  Tensor last_of(const Tensor& steps, const Stream& stream) const {
    const Tensor result = empty_on(stream, {1, batch, width}, steps.dtype());
    copy_into(result, part_of(steps, 0, at(length - 1), 1));
    return result.reshape({batch, width});
  }

  // The gradient of the last state, in memory that can be overwritten.
  Tensor start_of(const Tensor& grad, const Stream& stream, Dtype dtype) const {
    Tensor result = empty_on(stream, {batch, width}, dtype);
    if (grad.defined()) {
      copy_into(result, grad);
    } else {
      fill(result, 0);
    }
    return result;
  }
};

// Throws unless the arguments fit the input: all of one kind, and of these shapes.
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

// Runs a cell over a sequence; first states that are undefined are zeros.
//
// All are of one device and floating-point dtype, unless autocast is on. Half precision is computed
// in f32, the states from step to step as well, and the results are rounded once.
template <class Cell>
std::vector<Tensor> recurrent(RecurrentArguments arguments, bool reverse) {
  using A = RecurrentArguments;
  auto& tensors = arguments.tensors;
  if (is_autocast_enabled()) {
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
  std::vector<Tensor> results = lockstep::apply(
      RecurrentOp<Cell>{reverse}, x, tensors[A::h0], tensors[A::c0], tensors[A::weight_ih],
      tensors[A::weight_hh], tensors[A::bias_ih], tensors[A::bias_hh]);
  for (Tensor& result : results) result = result.to(dtype);
  return results;
}

}  // namespace lockstep::detail
