// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/recording/name_thread.hpp>

#include <pthread.h>

#include <string>

namespace lockstep::profile {

LOCKSTEP_INLINE const std::string*& detail::thread_name() {
  constinit thread_local const std::string* name = nullptr;
  return name;
}

LOCKSTEP_INLINE void name_thread(const std::string& name) {
  struct Owner {
    std::string name;
    ~Owner() { detail::thread_name() = nullptr; }
  };
  thread_local Owner owner;
  owner.name = name;
  detail::thread_name() = &owner.name;
  (void)::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace lockstep::profile
