// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/channel_norm.hpp>
#include <lockstep/cuda/kernels/conv.hpp>
#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/kernels/copy_sixteens.hpp>
#include <lockstep/cuda/kernels/functors.hpp>
#include <lockstep/cuda/kernels/index.hpp>
#include <lockstep/cuda/kernels/layer_norm.hpp>
#include <lockstep/cuda/kernels/loss.hpp>
#include <lockstep/cuda/kernels/matmul.hpp>
#include <lockstep/cuda/kernels/pooling.hpp>
#include <lockstep/cuda/kernels/reduce.hpp>
#include <lockstep/cuda/kernels/rnn.hpp>
#include <lockstep/cuda/kernels/softmax.hpp>
#include <lockstep/cuda/launch/kernel.hpp>

// All that the library launches: functors, and Calls.
namespace lockstep::cuda {

using AllKernels = Kernels<FunctorKernels, CopyKernels, CopyFew, CopyMany, ReduceCalls,
                           ChannelCalls, LayerNormCalls, SoftmaxCalls, LossCalls, PoolingCalls,
                           MatmulCalls, ConvCalls, RnnCalls, IndexCalls>;

}  // namespace lockstep::cuda
