// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/recording/name_thread.hpp>

#include <pthread.h>

#include <string>

namespace lockstep::profile {

LOCKSTEP_INLINE std::string& detail::thread_name() {
  thread_local std::string name;
  return name;
}

LOCKSTEP_INLINE void name_thread(const std::string& name) {
  detail::thread_name() = name;
  (void)::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace lockstep::profile
