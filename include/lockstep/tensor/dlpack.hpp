// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <optional>

// DLPack's memory layout, version 1, under its own names: https://dmlc.github.io/dlpack. A program
// that also includes <dlpack/dlpack.h> casts pointers between its types and these.
namespace lockstep::dlpack {

struct [[gnu::may_alias]] DLPackVersion {
  std::uint32_t major;  // another one has another layout after the flags
  std::uint32_t minor;  // a higher one has more devices and dtypes
};

enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,  // page-locked host memory
};

struct [[gnu::may_alias]] DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;  // 0 for host memory
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
};

struct [[gnu::may_alias]] DLDataType {
  std::uint8_t code;
  std::uint8_t bits;    // of an element
  std::uint16_t lanes;  // elements of a vector; 1 for plain numbers
};

struct [[gnu::may_alias]] DLTensor {
  void* data;  // null if there are no elements
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; null: row-major
  std::uint64_t byte_offset;  // from `data` to the first element
};

// The flag DLPACK_FLAG_BITMASK_READ_ONLY of a DLManagedTensorVersioned.
inline constexpr std::uint64_t kReadOnly = 1;

// A tensor that its producer keeps for a consumer, which calls `deleter` with it when done.
struct [[gnu::may_alias]] DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;                           // the producer's
  void (*deleter)(DLManagedTensorVersioned*);  // null: nothing to do
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace lockstep::dlpack

namespace lockstep {

// Passes a tensor to another library, which shares its memory. In Python it goes into a PyCapsule
// named "dltensor_versioned".
//
// The consumer calls the deleter once, from any thread, when its work with the memory has ended;
// until then the memory stays, whatever happens to the tensor. Call `mark_changed` if the consumer
// has written to it, so that backward notices. `stream` is what the consumer has passed to
// `__dlpack__`, the stream on which it will use the memory: std::nullopt for Python's None, and -1
// for no ordering. For CUDA 1 or None is the legacy default stream, 2 the thread's default stream,
// and any other number a cudaStream_t.
//
// **Torch counterpart.** torch.Tensor.__dlpack__, torch.utils.dlpack.to_dlpack.
// **Devices and streams.** For a GPU's tensor the consumer's stream waits for the tensor's current
// stream and for all recorded readers of the memory. For a host device's tensor, which a consumer
// uses at once as plain host memory, the call itself waits for them.
// **Backward.** None: an AutogradError for a tensor that requires grad; detach() it first.
// **Threads and exceptions.** A ValueError for a `stream` of 0 or below -1, and on the host for any
// but None and -1; an OperandError for a sparse tensor.
// **Example.** PyCapsule_New(ls::to_dlpack(x.detach()), "dltensor_versioned", &delete_unused);
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor,
                                            std::optional<std::intptr_t> stream = {});

// What `__dlpack_device__` returns for a tensor.
dlpack::DLDevice dlpack_device(const Tensor& tensor);

// What to pass to a producer's `__dlpack__` so that its work comes before what is issued to
// `stream` from now on: the cudaStream_t, or None for a host device.
std::optional<std::intptr_t> dlpack_stream(const Stream& stream);

struct FromDlpackOptions {
  std::optional<Device> device = {};  // the tensor's device; default: that of its memory
  std::optional<bool> copy = {};      // always or never; default: if it cannot be shared
};

// A tensor that shares the memory of another library's tensor. The memory is given back when the
// last tensor on it is gone and its work has ended.
//
// Host memory becomes a tensor on plain `cpu`, or on the host device that `options` name. The
// memory is copied if `options` say so or name a device that it does not belong to, or if it is
// read-only, which a Tensor cannot be (torch shares it); it has then been given back when this
// returns.
//
// **Torch counterpart.** torch.from_dlpack, with `device` and `copy` as there.
// **Devices and streams.** As from_blob; pass the producer the `dlpack_stream` of the device's
// current stream. A copy has ended when this returns.
// **Backward.** The result is a leaf that does not require grad.
// **Threads and exceptions.** As from_blob: any thread may call the deleter. An error leaves the
// tensor to the producer and does not call the deleter, so a PyCapsule stays as it was; rename it
// to "used_dltensor_versioned" only after success. A DataError for a version other than 1 and for
// invalid members; a DtypeError or a DeviceError for elements or a device that lockstep does not
// have; a ShapeError for more than eight dimensions; a ValueError if a copy is needed but
// forbidden; and from_blob's.
// **Example.** ls::Tensor x = ls::from_dlpack(managed);
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed,
                   const FromDlpackOptions& options = {});

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/dlpack.ipp>
#endif
