// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// Keeps the shared library that this code is in loaded until the process ends, also after dlclose.
// To be called before a thread is started that nobody ends: its code must stay where it is.
void stay_loaded();

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/device/impl/stay_loaded.ipp>
#endif
