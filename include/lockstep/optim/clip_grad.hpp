// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/optim/parameter_list.hpp>

namespace lockstep::optim {

// Scales all gradients by one factor, in place, so that their Euclidean norm, taken as if they were
// one vector, is at most `max_norm`. Returns the norm that they had.
//
// The norm is summed in f64. The factor is max_norm / (norm + 1e-6) if that is below 1; parameters
// without a gradient are left out. A norm that is not finite makes gradients that are not, unless
// `error_if_nonfinite` asks for an error. A sparse gradient is coalesced first, and one of which
// several elements are one in memory, such as an expanded one, gives way to a copy.
//
// **Torch counterpart.** torch.nn.utils.clip_grad_norm_ with norm_type = 2.
// **Devices and streams.** Gradients may be on several devices; each is read and scaled on the
// current stream of its device, and the norm is waited for.
// **Backward.** Not recorded.
// **Threads and exceptions.** A ValueError for a max_norm that is negative or not a number, and for
// a norm that is not finite if asked for; nothing has been scaled then.
// **Example.** optim::clip_grad_norm_(model.parameters(), 1.0);
double clip_grad_norm_(const ParameterList& parameters, double max_norm,
                       bool error_if_nonfinite = false);

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/clip_grad.ipp>
#endif
