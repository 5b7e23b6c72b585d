// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/rnn/rnn_calls.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

// A recurrent layer in one direction by the device's library, forward and backward.
namespace lockstep::detail {

// True if the device has a library for the layer: a GPU has, unless a size is 0 or larger than
// cuDNN allows.
inline bool has_recurrent_library(const Tensor& x, std::int64_t rows) {
  if (x.device().is_cpu()) return false;
  constexpr std::int64_t kMostSteps = 65535;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const Shape& sizes = x.sizes();
  return all_of(sizes, [](auto n) { return n > 0 && n <= kMost; }) && sizes[0] <= kMostSteps &&
         rows > 0 && rows <= kMost / sizes[1];
}

// Runs the layer on a stream.
template <class Cell>
class RecurrentLibrary {
 public:
  using A = RecurrentArguments;

  RecurrentLibrary(const RecurrentArguments& arguments, bool reverse, bool training,
                   const Stream& stream)
      : stream_(stream), dtype_(arguments[A::x].dtype()) {
    for (std::size_t i = 0; i < A::count; ++i) {
      packed_.tensors[i] = packed_or_undefined(arguments.tensors[i]);
    }
    const Shape& x = arguments[A::x].sizes();
    g_ = {x[0], x[1], x[2], arguments[A::weight_hh].sizes()[1], reverse, training};
  }

  // Returns y, the last h and, if the cell has one, the last c. Sets `reserve` and `math` to what
  // backward needs.
  std::vector<Tensor> forward(Tensor& reserve, int& math) const {
    std::vector<Tensor> results{empty_on(stream_, {g_.length, g_.batch, g_.width}, dtype_)};
    for (int state = 0; state < (Cell::kHasC ? 2 : 1); ++state) {
      results.push_back(empty_on(stream_, {g_.batch, g_.width}, dtype_));
    }
    dispatch_floating(dtype_, Cell::name, [&]<class T>(T) {
      std::size_t bytes = 0;
      launch_gpu_call(stream_,
                      RecurrentReserve<T, Cell>{g_, packed_[A::bias_ih].defined(),
                                                packed_[A::bias_hh].defined(), &bytes, &math});
      reserve = empty_on(stream_, {static_cast<std::int64_t>(bytes)}, Dtype::u8);
      RecurrentForward<T, Cell> call{};
      give_inputs<T>(call, math);
      call.y = output<T>(results[0], stream_);
      call.h = output<T>(results[1], stream_);
      if constexpr (Cell::kHasC) call.c = output<T>(results[2], stream_);
      call.reserve = output<std::uint8_t>(reserve, stream_);
      launch_gpu_call(stream_, call);
    });
    return results;
  }

  // The gradients of the arguments for which `needs(argument)` is true. The library computes those
  // of all parameters together.
  template <class Needs>
  std::array<Tensor, A::count> backward(const Tensor& y, const Tensor& reserve, int math,
                                        const std::vector<Tensor>& grads,
                                        const Needs& needs) const {
    std::array<Tensor, A::count> found;
    const bool parameters =
        needs(A::weight_ih) || needs(A::weight_hh) || needs(A::bias_ih) || needs(A::bias_hh);
    for (std::size_t i = 0; i < A::count; ++i) {
      const Tensor& argument = packed_.tensors[i];
      const bool is_parameter = i >= A::weight_ih;
      if (!argument.defined() || !(is_parameter ? parameters : needs(i))) continue;
      found[i] = empty_on(stream_, argument.sizes(), dtype_);
    }
    const Tensor grad_y = packed_or_undefined(grads[0]);
    const Tensor grad_h = packed_or_undefined(grads[1]);
    const Tensor grad_c = Cell::kHasC ? packed_or_undefined(grads[2]) : Tensor();
    dispatch_floating(dtype_, Cell::name, [&]<class T>(T) {
      RecurrentBackward<T, Cell> call{};
      give_inputs<T>(call, math);
      call.y = input<T>(y);
      call.reserve = input<std::uint8_t>(reserve);
      call.grad_y = optional_input<T>(grad_y);
      call.grad_h = optional_input<T>(grad_h);
      call.grad_c = optional_input<T>(grad_c);
      const auto wanted = [&](typename A::Argument which) {
        return optional_output<T>(found[which], stream_);
      };
      call.grad_x = wanted(A::x);
      call.grad_h0 = wanted(A::h0);
      call.grad_c0 = wanted(A::c0);
      call.grad_weights = {wanted(A::weight_ih), wanted(A::weight_hh), wanted(A::bias_ih),
                           wanted(A::bias_hh)};
      launch_gpu_call(stream_, call);
    });
    for (std::size_t i = A::weight_ih; i < A::count; ++i) {
      if (!needs(i)) found[i] = Tensor();
    }
    return found;
  }

 private:
  template <class T, class Call>
  void give_inputs(Call& call, int math) const {
    call.x = input<T>(packed_[A::x]);
    call.h0 = input<T>(packed_[A::h0]);
    if constexpr (Cell::kHasC) call.c0 = input<T>(packed_[A::c0]);
    call.weights = {input<T>(packed_[A::weight_ih]), input<T>(packed_[A::weight_hh]),
                    optional_input<T>(packed_[A::bias_ih]), optional_input<T>(packed_[A::bias_hh])};
    call.g = g_;
    call.g.math = math;
  }

  const Stream stream_;
  const Dtype dtype_;
  RecurrentArguments packed_;
  RecurrentGeometry g_;
};

}  // namespace lockstep::detail
