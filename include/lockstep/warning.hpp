// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <functional>
#include <string>

namespace lockstep {

// Sets a function to call with each warning's text instead of printing it to standard error, where
// the same text appears only once; an empty one restores printing. One thread at a time calls it,
// and it must not warn itself.
void set_warning_handler(std::function<void(const std::string&)> handler);

// Warns the user of something that is probably unintended.
//
// **Torch counterpart.** TORCH_WARN, warnings.warn.
void warn(const std::string& text);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/impl/warning.ipp>
#endif
