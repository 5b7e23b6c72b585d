// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/tensor/tensor.hpp>

// Losses. Half precision is computed in f32. The result stays f32 where autocast is on, and is
// rounded to the input's dtype elsewhere.
namespace lockstep {

// The negative of the input at the label's place: of log-probabilities [batch, classes, …] (or
// [classes]) and labels [batch, …] of i64. The mean is over the labels.
//
// **Torch counterpart.** torch.nn.functional.nll_loss, without weight; no label is ignored.
// **Backward.** Into the input; derivatives of any order.
// **Threads and exceptions.** As cross_entropy.
Tensor nll_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// nll_loss of the log_softmax of the input, in one pass: the loss of a classifier whose outputs are
// [batch, classes, …] (or [classes]), with labels [batch, …] of i64.
//
// With `label_smoothing`, a number from 0 to 1, that part of each label is shared out among all
// classes; that takes several passes.
//
// **Torch counterpart.** torch.nn.functional.cross_entropy with class indices, without weight and
// ignore_index: a label of −100 is an IndexError. Padding gets the label of any class and is left
// out by a mask over the losses of Reduction::none, whose sum is divided by the mask's.
// **Devices and streams.** Both on one device. Sums are in double and in a fixed order.
// **Backward.** Into the input, with derivatives of its own.
// **Threads and exceptions.** A label outside the classes is an IndexError that names it, its row
// and the number of classes: at this call, or where the device's stream is asynchronous at the next
// synchronisation with it. A ShapeError, DtypeError or DeviceError names both arguments. A
// ValueError for another label_smoothing.
// **Example.** `cross_entropy(model(images), labels).backward();`
Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     Reduction reduction = Reduction::mean, double label_smoothing = 0);

// (input − target)², its mean by default. The shapes are equal: nothing is broadcast, since a loss
// between [n] and [n, 1] is a mistake.
//
// **Torch counterpart.** torch.nn.functional.mse_loss (which warns where shapes differ).
// **Backward.** Into both.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names both arguments.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// |input − target|. As mse_loss; its gradient is 0 where they are equal.
//
// **Torch counterpart.** torch.nn.functional.l1_loss.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// With d = input − target: d² / (2 · beta) where |d| is below `beta`, |d| − beta / 2 elsewhere. As
// mse_loss; a ValueError for a negative beta. With beta = 0 it is l1_loss.
//
// **Torch counterpart.** torch.nn.functional.smooth_l1_loss.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::mean, double beta = 1);

// −(target · log(input) + (1 − target) · log(1 − input)) of probabilities, which are from 0 to 1: a
// NaN outside. A logarithm counts as −100 at least, so that the loss is finite. As mse_loss.
//
// **Torch counterpart.** torch.nn.functional.binary_cross_entropy, without weight.
// **Threads and exceptions.** As mse_loss, and a DtypeError while autocast is on, as torch's on
// GPUs: what a sigmoid there makes of half precision is 0 or 1 too soon.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            Reduction reduction = Reduction::mean);

// The binary_cross_entropy of sigmoid(input), exact for inputs of any size. As mse_loss.
//
// **Torch counterpart.** torch.nn.functional.binary_cross_entropy_with_logits, without weight and
// pos_weight.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/loss.ipp>
#endif
