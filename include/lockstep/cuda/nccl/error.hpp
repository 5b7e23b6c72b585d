// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <nccl.h>

namespace lockstep {

// A call of NCCL that failed. The message names the call and the devices, and quotes NCCL.
//
// **Torch counterpart.** torch.distributed.DistBackendError.
class NcclError : public DeviceError {
 public:
  NcclError(const std::string& message, ncclResult_t code) : DeviceError(message), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

namespace cuda {

// "cuda:0, cuda:1"
inline std::string names_of(std::span<const Device> devices) {
  std::string names;
  for (const Device& device : devices) {
    if (!names.empty()) names += ", ";
    names += lockstep::detail::str(device);
  }
  return names;
}

// Throws an NcclError unless the call for `devices` has succeeded or, as with a non-blocking
// communicator, is still being made (see non_blocking.hpp). `communicator` may be null.
inline void check_nccl(ncclResult_t status, const char* call, std::span<const Device> devices,
                       ncclComm_t communicator) {
  if (status == ncclSuccess || status == ncclInProgress) [[likely]]
    return;
  std::string message =
      lockstep::detail::str(call, " on ", names_of(devices), ": ", ncclGetErrorString(status), " (",
                            static_cast<int>(status), ")");
  if (const char* details = ncclGetLastError(communicator); details && *details) {
    message += lockstep::detail::str(": ", details);
  }
  throw NcclError(message, status);
}

// An exception's text, or its type's name if it has none; "out of memory" where there is no memory
// for these.
inline std::string text_of(const std::exception_ptr& error) noexcept {
  try {
    const lockstep::detail::DescribedError thrown = lockstep::detail::described(error);
    return thrown.what ? *thrown.what : thrown.type_name();
  } catch (...) {
    return "out of memory";  // short enough to need none
  }
}

// Notes that a collective's results are lost on a GPU: whoever waits for it gets an NcclError.
// `text()` says what has happened.
template <class Text>
void note_lost_results(Device device, const Text& text) noexcept {
  std::shared_ptr<const std::string> what;
  try {
    what = std::make_shared<const std::string>(lockstep::detail::str(
        text(), "; what ", device, " has computed since may rest on the result, which never came: ",
        "nccl::forget_lost_results(\"", device,
        "\") ends this error, once nothing of it is needed"));
  } catch (...) {  // no memory
  }
  LostResults::note(device, std::move(what), [](const std::string* said) {
    throw NcclError(said
                        ? *said
                        : "a collective was given up, and there was no memory to say why: what its "
                          "GPU has computed since may rest on the result, which never came: "
                          "nccl::forget_lost_results ends this error",
                    ncclSystemError);
  });
}

// Whether it is an exception of type E, or of a type derived from that.
template <class E>
bool is_a(const std::exception_ptr& cause) noexcept {
  try {
    std::rethrow_exception(cause);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

// True if the error may come of another rank's end: what NCCL reports then, and a time limit that
// is over.
inline bool may_be_of_others(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const NcclError& found) {
    return found.code() == ncclRemoteError || found.code() == ncclSystemError ||
           found.code() == ncclInternalError;
  } catch (...) {
    return false;
  }
}

// Throws an NcclError if what was started with a communicator has met an error since, on a GPU or
// in a connection.
inline void check_async(ncclComm_t communicator, std::span<const Device> devices) {
  ncclResult_t met = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(communicator, &met), "ncclCommGetAsyncError", devices,
             communicator);
  check_nccl(met, "ncclCommGetAsyncError", devices, communicator);
}

}  // namespace cuda

}  // namespace lockstep
