// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/together_kernel.hpp>
#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/fours.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/distributed/thread/combine_kernel.hpp>
#include <lockstep/ops/kernels/attention_kernels.hpp>
#include <lockstep/ops/kernels/batch_norm_kernels.hpp>
#include <lockstep/ops/kernels/dropout_kernel.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/kernels/gelu_kernels.hpp>
#include <lockstep/ops/kernels/loss_kernels.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstddef>
#include <cstdint>

// Functors that a GPU runs as a host does, of operations that need no more than to be listed.
namespace lockstep::cuda {

template <class T>
requires kInFours<T>
struct Fours<detail::AddInPlaceKernel<T>> {
  using Kernel = detail::AddInPlaceKernel<T>;
  static bool fit(const Kernel& kernel) { return has_fours(kernel.out) && has_fours(kernel.in); }
  LOCKSTEP_HD static void run(const Kernel& kernel, std::size_t i) {
    const View<const T> before{kernel.out.data, kernel.out.size};
    const detail::PlusScaled<T> add{kernel.alpha};
    write_four(kernel.out, i, map_fours<T>(add, read_four(before, i), read_four(kernel.in, i)));
  }
};

// Of f32, f64, i64 and i32.
template <class T>
struct NumericFunctors
    : Kernels<UnaryKernels<
                  T, T, detail::Relu<T>, detail::Abs<T>, detail::Square<T>, detail::Clamp<T>,
                  detail::BindRight<T, detail::Plus<T>>, detail::BindRight<T, detail::Minus<T>>,
                  detail::BindLeft<T, detail::Minus<T>>, detail::BindRight<T, detail::Times<T>>>,
              BinaryKernels<T, T, detail::Plus<T>, detail::PlusScaled<T>, detail::Minus<T>,
                            detail::Times<T>, detail::Maximum<T>, detail::Minimum<T>>,
              UnaryKernels<T, bool, detail::CompareTo<T>>,
              BinaryKernels<T, bool, detail::Compare<T>>,
              detail::TogetherKernel<detail::BinaryKernel<T, T, detail::Plus<T>>>,
              detail::AddInPlaceKernel<T>> {};

// A kernel for one parameter, and for many.
template <class... F>
struct AloneAndTogether : Kernels<F..., detail::TogetherKernel<F>...> {};

// Of f32 and f64 besides.
template <class T>
struct FloatingFunctors
    : Kernels<
          UnaryKernels<T, T, detail::Exp<T>, detail::Log<T>, detail::Sqrt<T>, detail::Tanh<T>,
                       detail::Sigmoid<T>, detail::Pow<T>, detail::Sign<T>, detail::InverseRoot<T>,
                       detail::Silu<T>, detail::LeakyRelu<T>, detail::Gelu<T>, detail::GeluTanh<T>,
                       detail::SmoothAbs<T>, detail::BindRight<T, detail::Over<T>>,
                       detail::BindLeft<T, detail::Over<T>>>,
          BinaryKernels<T, T, detail::Over<T>, detail::MaximumShare<T>, detail::ReluGradient<T>,
                        detail::TanhGradient<T>, detail::SigmoidGradient<T>,
                        detail::InverseRootGradient<T>, detail::ClampGradient<T>,
                        detail::SiluGradient<T>, detail::LeakyReluGradient<T>,
                        detail::GeluGradient<T>, detail::GeluTanhGradient<T>,
                        detail::BinaryCrossEntropy<T>, detail::BinaryCrossEntropyOfLogit<T>>,
          UnaryKernels<bool, T, detail::MaskBias<T>>,
          AloneAndTogether<detail::SgdKernel<T>, detail::SgdMomentumKernel<T>,
                           detail::AdamKernel<T>>,
          detail::CausalBias<T>, detail::DropoutKernel<T>, detail::MoveRunningKernel<T>,
          detail::BatchScaleKernel<T>, detail::BatchGradientKernel<T>> {};

template <template <class> class F>
struct ForAll
    : ForEach<F, float, double, Half, BFloat16, std::int64_t, std::int32_t, std::uint8_t, bool> {};

using FunctorKernels =
    Kernels<ForAll<detail::FillKernel>, ForAll<distributed::detail::CombineKernel>,
            ForNumeric<NumericFunctors>, ForFloating<FloatingFunctors>>;

}  // namespace lockstep::cuda
