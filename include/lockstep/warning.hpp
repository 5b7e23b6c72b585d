// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <functional>
#include <string>

namespace lockstep {

// Sets what is called with each warning's text in place of printing it to standard error; an empty
// function restores that. The handler is called by one thread at a time and must not warn itself.
void set_warning_handler(std::function<void(const std::string&)> handler);

// Tells the user of something that is probably not meant, and goes on.
//
// **Torch counterpart.** TORCH_WARN, warnings.warn.
void warn(const std::string& text);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/impl/warning.ipp>
#endif
