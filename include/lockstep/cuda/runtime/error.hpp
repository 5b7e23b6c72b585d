// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace lockstep {

// A call of the CUDA runtime that failed: the message has the call, the device, and the runtime's
// own name and text for the code.
//
// **Torch counterpart.** torch.AcceleratorError.
class CudaError : public DeviceError {
 public:
  CudaError(const std::string& message, int code) : DeviceError(message), code_(code) {}
  // The cudaError_t, or the library's own status.
  int code() const { return code_; }

 private:
  int code_;
};

namespace cuda {

// True for an error of work on the GPU itself: the process cannot use the device any more.
inline bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

[[noreturn, gnu::cold]] inline void fail(cudaError_t status, const std::string& call,
                                         Device device) {
  (void)cudaGetLastError();  // or the next check would meet it again
  std::string message = detail::str(call, " on ", device, ": ", cudaGetErrorString(status), " (",
                                    cudaGetErrorName(status), ", ", static_cast<int>(status), ")");
  if (is_sticky(status)) {
    message +=
        "; it came from work that was issued before and makes the device unusable in this process. "
        "With CUDA_LAUNCH_BLOCKING=1 the call that is at fault throws";
  }
  throw CudaError(message, status);
}

using lockstep::check;

// Throws a CudaError unless a call succeeded.
inline void check(cudaError_t status, const char* call, Device device) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, call, device);
}

// The answer of a query. The runtime keeps "not ready" as its last error, which would be taken for
// the next launch's.
inline bool is_done(cudaError_t status, const char* call, Device device) {
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(status, call, device);
  return true;
}

}  // namespace cuda

}  // namespace lockstep
