// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>
#include <vector>

namespace lockstep::autograd {

// Adds the gradient of `tensors` with respect to every leaf that they were computed from to that
// leaf's `grad`. A leaf that no longer requires grad keeps what it has.
//
// A scalar's own gradient is 1 unless given; any other tensor needs one of its shape. Unless
// `retain_graph` is set (default: `create_graph`), backward frees what operations saved, and a
// second backward is an AutogradError. With `create_graph`, backward is itself recorded: a leaf's
// `grad` then leads back to the leaf, and both are never freed unless set_grad({}) or zero_grad
// breaks the cycle; autograd::grad makes no such cycle.
//
// **Torch counterpart.** torch::autograd::backward.
// **Devices and streams.** A graph on one device runs on the caller. A graph on several devices
// runs in parallel where that pays, one node per device at a time; nodes of different devices may
// wait for each other. Each node runs on its forward's stream, and the caller's current streams
// wait for all of these. A hook or an operation may start a pass of its own, some hundred deep, on
// the same thread (torch takes new ones).
// **Threads and exceptions.** Once every device has stopped, throws the first exception by device
// order; gradients accumulated so far stay. It has the type that the operation threw; one from
// lockstep/error.hpp or <stdexcept> also names the operation and its device. An Error if threads
// for several devices cannot be started; nothing has run then.
void backward(const std::vector<Tensor>& tensors, const std::vector<Tensor>& gradients = {},
              std::optional<bool> retain_graph = {}, bool create_graph = false);

// Returns the gradients of `outputs` with respect to `inputs`, leaves or not, without touching any
// `grad`. An input that `outputs` do not depend on gets an undefined tensor if `allow_unused` is
// set, otherwise it is an AutogradError.
//
// **Torch counterpart.** torch::autograd::grad.
// **Devices and streams.** As `backward`.
// **Threads and exceptions.** As `backward`. A ValueError for no inputs, an AutogradError for an
// input that does not require grad.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs = {},
                         std::optional<bool> retain_graph = {}, bool create_graph = false,
                         bool allow_unused = false);

}  // namespace lockstep::autograd

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/engine.ipp>
#endif
