// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/recording.hpp>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LOCKSTEP_HAS_NVTX 1
#else
#define LOCKSTEP_HAS_NVTX 0
#endif

namespace lockstep::cuda {

// Sends the names of ranges to the tool that this program runs under, such as Nsight Systems, as
// the NVTX domain "lockstep". Without a tool, or where the toolkit came without NVTX's headers,
// nothing is sent, and ranges stay as cheap as they are.
//
// Threads: any; all but the first call do nothing.
inline void start_nvtx() {
#if LOCKSTEP_HAS_NVTX
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("lockstep");
  static constexpr profile::detail::RangeListener kListener{
      [](const char* name) {
        nvtxEventAttributes_t attributes{};
        attributes.version = NVTX_VERSION;
        attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
        attributes.message.ascii = name;
        (void)nvtxDomainRangePushEx(domain, &attributes);
      },
      [] { (void)nvtxDomainRangePop(domain); }};
  [[maybe_unused]] static const bool started = [] {
    if (domain != nullptr) profile::detail::Recorder::instance().listen(&kListener);
    return true;
  }();
#endif
}

}  // namespace lockstep::cuda

#undef LOCKSTEP_HAS_NVTX
