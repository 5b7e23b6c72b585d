// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/tensor/tensor.hpp>

// Losses. Half precision is computed in f32. The result stays f32 under autocast, and is otherwise
// rounded to the input's dtype.
namespace lockstep {

// The negative of the input at the label, for log-probabilities [batch, classes, …] (or [classes])
// and labels [batch, …] of i64. The mean is over the labels.
//
// **Torch counterpart.** torch.nn.functional.nll_loss, without weight; no label is ignored.
// **Backward.** Gradients of the input; derivatives of any order.
// **Threads and exceptions.** As cross_entropy.
Tensor nll_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// The loss of a classifier: nll_loss of the log_softmax of the input, for outputs [batch, classes,
// …] (or [classes]) and labels [batch, …] of i64.
//
// `label_smoothing`, from 0 to 1, is the part of each label that is spread over all classes.
//
// **Torch counterpart.** torch.nn.functional.cross_entropy with class indices, without weight and
// ignore_index: a label of −100 is an IndexError. To ignore padding, give it any class, mask the
// losses of Reduction::none, and divide their sum by the mask's.
// **Devices and streams.** Both are on one device. Sums are in double and in a fixed order.
// **Backward.** Gradients of the input; derivatives of any order.
// **Threads and exceptions.** A label outside the classes is an IndexError that names it, its row
// and the number of classes: at this call, or on a device with asynchronous streams at the next
// synchronisation with the stream. A ShapeError, DtypeError or DeviceError names both arguments. A
// ValueError for another label_smoothing.
// **Example.** `cross_entropy(model(images), labels).backward();`
Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     Reduction reduction = Reduction::mean, double label_smoothing = 0);

// (input − target)², by default its mean. The shapes must be equal, without broadcasting, since a
// loss between [n] and [n, 1] is a mistake.
//
// **Torch counterpart.** torch.nn.functional.mse_loss, which only warns if shapes differ.
// **Backward.** Gradients of both.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError names both arguments.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// |input − target|. Otherwise as mse_loss; the gradient is 0 where they are equal.
//
// **Torch counterpart.** torch.nn.functional.l1_loss.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// With d = input − target: d² / (2 · beta) where |d| is below `beta`, else |d| − beta / 2. With
// beta = 0 it is l1_loss; a negative beta is a ValueError. Otherwise as mse_loss.
//
// **Torch counterpart.** torch.nn.functional.smooth_l1_loss.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::mean, double beta = 1);

// −(target · log(input) + (1 − target) · log(1 − input)) for probabilities from 0 to 1; outside it
// is NaN. A logarithm is at least −100, so the loss is finite. Otherwise as mse_loss.
//
// **Torch counterpart.** torch.nn.functional.binary_cross_entropy, without weight.
// **Threads and exceptions.** As mse_loss, and a DtypeError under autocast, like torch's on GPUs: a
// sigmoid in half precision rounds to 0 or 1 too soon.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            Reduction reduction = Reduction::mean);

// The binary_cross_entropy of sigmoid(input), exact for inputs of any size. Otherwise as mse_loss.
//
// **Torch counterpart.** torch.nn.functional.binary_cross_entropy_with_logits, without weight and
// pos_weight.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/loss.ipp>
#endif
