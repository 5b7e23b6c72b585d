// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

namespace lockstep::profile {

namespace detail {

// What name_thread has said of the calling thread.
std::string& thread_name();

}  // namespace detail

// Names the calling thread: its row in timelines that it has no range in yet, and, as far as the
// system's 15 characters go, the thread itself. Threads of one name share a row.
void name_thread(const std::string& name);

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/name_thread.ipp>
#endif
