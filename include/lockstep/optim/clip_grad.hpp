// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/optim/parameter_list.hpp>

namespace lockstep::optim {

// Scales all gradients in place by one factor, so that their Euclidean norm, taken as one vector,
// is at most `max_norm`. Returns the norm before.
//
// The norm is summed in f64. The factor is max_norm / (norm + 1e-6) if that is below 1. Parameters
// without a gradient are skipped. A norm that is not finite makes the gradients not finite, unless
// `error_if_nonfinite` is set. A sparse gradient is coalesced first; one of which several elements
// share memory, such as an expanded one, is replaced by a copy.
//
// **Torch counterpart.** torch.nn.utils.clip_grad_norm_ with norm_type = 2.
// **Devices and streams.** Gradients may be on several devices; each is read and scaled on the
// current stream of its device. The host waits for the norm.
// **Backward.** Not recorded.
// **Threads and exceptions.** A ValueError for a max_norm that is negative or NaN, and with
// `error_if_nonfinite` for a norm that is not finite; then nothing is scaled.
// **Example.** optim::clip_grad_norm_(model.parameters(), 1.0);
double clip_grad_norm_(const ParameterList& parameters, double max_norm,
                       bool error_if_nonfinite = false);

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/clip_grad.ipp>
#endif
