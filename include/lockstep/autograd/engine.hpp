// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <optional>
#include <vector>

namespace lockstep::autograd {

// Adds the gradient of `tensors` with respect to every leaf that they were computed from into that
// leaf's `grad`. A leaf that does not require grad any more keeps what it has.
//
// A scalar's own gradient is 1 unless given; any other tensor needs one of its shape. Unless
// `retain_graph`, whose default is `create_graph`, what operations saved is freed on the way, and a
// second backward is an AutogradError. With `create_graph` backward is itself recorded: a leaf's
// `grad` then leads back to the leaf, and the memory of both is never freed unless set_grad({}) or
// zero_grad takes it away; autograd::grad has no such cycle.
//
// **Torch counterpart.** torch::autograd::backward.
// **Devices and streams.** A graph on several devices runs in parallel where that pays, each
// device's nodes one at a time; a graph on one device runs on the caller. Nodes of different
// devices may wait for each other. Each node runs on the stream of its forward, and the caller's
// current streams wait for all of these. A hook or an operation may begin a pass of its own, on the
// stack of the thread that runs it: some hundred within one another, where torch takes new threads.
// **Threads and exceptions.** The first exception by device order is thrown once every device has
// stopped; gradients accumulated until then stay. It is of the type that the operation threw; one
// of lockstep/error.hpp's or <stdexcept>'s names the operation and its device as well. An Error if
// threads for several devices cannot be started; nothing has run then.
void backward(const std::vector<Tensor>& tensors, const std::vector<Tensor>& gradients = {},
              std::optional<bool> retain_graph = {}, bool create_graph = false);

// The gradients of `outputs` with respect to `inputs`, leaves or not, without touching any `grad`.
// An input that `outputs` do not depend on gets an undefined tensor if `allow_unused`, else it is
// an AutogradError.
//
// **Torch counterpart.** torch::autograd::grad.
// **Devices and streams.** As `backward`.
// **Threads and exceptions.** As `backward`. A ValueError without inputs, an AutogradError for an
// input that does not require grad.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs = {},
                         std::optional<bool> retain_graph = {}, bool create_graph = false,
                         bool allow_unused = false);

}  // namespace lockstep::autograd

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/impl/engine.ipp>
#endif
