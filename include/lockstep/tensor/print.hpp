// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <ostream>

namespace lockstep {

// Prints the values of a tensor, and its dtype, device and requires_grad where they are not the
// default.
//
// **Torch counterpart.** repr of a tensor in Python.
// **Devices and streams.** Copies the data to the host, which waits for the device.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/print.ipp>
#endif
