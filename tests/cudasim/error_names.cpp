// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

// Those that the simulator gives, or that a test may want it to give.
constexpr ErrorText kErrors[] = {
#define CUDASIM_ERROR(name, text) \
  { name, #name, text }
    CUDASIM_ERROR(cudaSuccess, "no error"),
    CUDASIM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    CUDASIM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    CUDASIM_ERROR(cudaErrorInitializationError, "initialization error"),
    CUDASIM_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    CUDASIM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    CUDASIM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    CUDASIM_ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    CUDASIM_ERROR(cudaErrorInsufficientDriver,
                  "CUDA driver version is insufficient for CUDA runtime version"),
    CUDASIM_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    CUDASIM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    CUDASIM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    CUDASIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    CUDASIM_ERROR(cudaErrorNoKernelImageForDevice,
                  "no kernel image is available for execution on the device"),
    CUDASIM_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    CUDASIM_ERROR(cudaErrorPeerAccessUnsupported,
                  "peer access is not supported between these two devices"),
    CUDASIM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    CUDASIM_ERROR(cudaErrorNotReady, "device not ready"),
    CUDASIM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    CUDASIM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    CUDASIM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    CUDASIM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    CUDASIM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    CUDASIM_ERROR(cudaErrorAssert, "device-side assert triggered"),
    CUDASIM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    CUDASIM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    CUDASIM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    CUDASIM_ERROR(cudaErrorNotSupported, "operation not supported"),
    CUDASIM_ERROR(cudaErrorUnknown, "unknown error"),
#undef CUDASIM_ERROR
};

const ErrorText* find(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

}  // namespace

extern "C" const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const ErrorText* known = find(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

extern "C" const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const ErrorText* known = find(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}
