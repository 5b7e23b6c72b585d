// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// The largest element of each window of size `kernel`, at steps of `stride`, in images [batch,
// channels, height, width] or [channels, height, width]. Padding counts as −∞. A window that would
// reach past the padding is left out.
//
// **Torch counterpart.** torch.nn.functional.max_pool2d, without dilation and ceil_mode.
// **Backward.** The gradient goes to the chosen element, the first of equal ones. As in torch a NaN
// is chosen over any number, and the last of several.
// **Threads and exceptions.** A ShapeError names kernel and shape; a ValueError for a kernel or a
// stride below 1, a kernel of 2^62 or more, or a padding that is negative or more than half the
// kernel.
Tensor max_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding = 0);

// Windows of `kernel` side by side.
inline Tensor max_pool2d(const Tensor& x, Size2d kernel) { return max_pool2d(x, kernel, kernel); }

// The mean of each window of size `kernel`, at steps of `stride`, in images like max_pool2d's.
// Padding counts as zeros, or with `count_include_pad` false not at all.
//
// **Torch counterpart.** torch.nn.functional.avg_pool2d, without ceil_mode and divisor_override.
// **Threads and exceptions.** As max_pool2d.
Tensor avg_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding = 0,
                  bool count_include_pad = true);

// Windows of `kernel` side by side.
inline Tensor avg_pool2d(const Tensor& x, Size2d kernel) { return avg_pool2d(x, kernel, kernel); }

}  // namespace lockstep

namespace lockstep::detail {

// Throws a ValueError unless the sizes of the windows are valid for both kinds of pooling.
void check_pool_sizes(const char* name, Size2d kernel, Size2d stride, Size2d padding);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/pooling.ipp>
#endif
