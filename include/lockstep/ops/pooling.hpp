// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

// The greatest element of each window of `kernel`, the windows `stride` apart, for images of shape
// [batch, channels, height, width] or [channels, height, width]. What the padding adds is less than
// any element; a window that would reach past it is left out.
//
// **Torch counterpart.** torch.nn.functional.max_pool2d, without dilation and ceil_mode.
// **Backward.** To the element chosen, the first of equal ones. As in torch a NaN is chosen over
// any number, the last of several.
// **Threads and exceptions.** A ShapeError that names kernel and shape; a ValueError for a kernel
// or a stride below 1, a kernel of 2^62 or more, or a padding that is negative or more than half
// the kernel.
Tensor max_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding = 0);

// Windows of `kernel` side by side.
inline Tensor max_pool2d(const Tensor& x, Size2d kernel) { return max_pool2d(x, kernel, kernel); }

// The mean of each window of `kernel`, the windows `stride` apart, for images as max_pool2d takes
// them. The padding adds zeros; with `count_include_pad` false they do not count.
//
// **Torch counterpart.** torch.nn.functional.avg_pool2d, without ceil_mode and divisor_override.
// **Threads and exceptions.** As max_pool2d.
Tensor avg_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding = 0,
                  bool count_include_pad = true);

// Windows of `kernel` side by side.
inline Tensor avg_pool2d(const Tensor& x, Size2d kernel) { return avg_pool2d(x, kernel, kernel); }

}  // namespace lockstep

namespace lockstep::detail {

// Throws a ValueError unless the sizes of the windows are as both kinds of pooling need them.
void check_pool_sizes(const char* name, Size2d kernel, Size2d stride, Size2d padding);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/pooling.ipp>
#endif
