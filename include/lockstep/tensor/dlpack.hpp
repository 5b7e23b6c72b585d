// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <optional>

// DLPack's layout in memory, version 1, under its names: https://dmlc.github.io/dlpack. A program
// that includes <dlpack/dlpack.h> as well casts a pointer to its types to one to these, or back.
namespace lockstep::dlpack {

struct [[gnu::may_alias]] DLPackVersion {
  std::uint32_t major;  // another one has another layout behind the flags
  std::uint32_t minor;  // a higher one knows more devices and dtypes
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
  void* data;  // null without elements
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; null: row-major
  std::uint64_t byte_offset;  // from `data` to the first element
};

// The flag DLPACK_FLAG_BITMASK_READ_ONLY of a DLManagedTensorVersioned.
inline constexpr std::uint64_t kReadOnly = 1;

// A tensor that its producer keeps for a consumer, who calls `deleter` with it when done.
struct [[gnu::may_alias]] DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;                           // the producer's
  void (*deleter)(DLManagedTensorVersioned*);  // null: nothing to do
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace lockstep::dlpack

namespace lockstep {

// Hands a tensor to another library, which uses its memory where it is. In Python it goes into a
// PyCapsule called "dltensor_versioned".
//
// The consumer calls the deleter once, from any thread, when its work with the memory has ended;
// the memory stays until then, whatever happens to the tensor. What the consumer writes counts for
// backward after `mark_changed`. `stream` is what the consumer has passed to `__dlpack__`: the
// stream that it will use the memory on. std::nullopt is Python's None, and -1 asks for no order.
// For CUDA 1 is the legacy default stream, which None means, too, 2 the thread's default stream,
// and any other number a cudaStream_t.
//
// **Torch counterpart.** torch.Tensor.__dlpack__, torch.utils.dlpack.to_dlpack.
// **Devices and streams.** A GPU's tensor: the consumer's stream waits for the tensor's current
// stream and for all that still read the memory. A host device's is host memory as any other to the
// consumer, who uses it at once: this waits for those streams.
// **Backward.** None: an AutogradError for a tensor that requires grad; detach() it.
// **Threads and exceptions.** A ValueError for 0 or less than -1, and for a stream on the host
// (None and -1 are no stream); an OperandError for a sparse tensor.
// **Example.** PyCapsule_New(ls::to_dlpack(x.detach()), "dltensor_versioned", &delete_unused);
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor,
                                            std::optional<std::intptr_t> stream = {});

// What `__dlpack_device__` has to say of a tensor.
dlpack::DLDevice dlpack_device(const Tensor& tensor);

// What a consumer has to pass to a producer's `__dlpack__` so that its work comes before what is
// issued to `stream` from now on: the cudaStream_t, or None for a host device's.
std::optional<std::intptr_t> dlpack_stream(const Stream& stream);

struct FromDlpackOptions {
  std::optional<Device> device = {};  // where the tensor is to be; else where its memory is
  std::optional<bool> copy = {};      // always, never, or else where it cannot be shared
};

// A tensor on the memory of another library's tensor, which gets it back when the last tensor on it
// is gone and its work has ended.
//
// Host memory is plain `cpu`'s, or that of a host device which `options` name. It is copied if
// `options` say so, if they name a device whose memory it is not, or if it is read-only, which a
// Tensor is not; the producer has it back then when this returns. (Torch shares read-only memory.)
//
// **Torch counterpart.** torch.from_dlpack, with `device` and `copy` as there.
// **Devices and streams.** As from_blob: the producer was given `dlpack_stream` of the device's
// current stream. A copy has ended when this returns.
// **Backward.** A leaf, which does not require grad.
// **Threads and exceptions.** As from_blob: the deleter may be called by any thread. An error
// leaves the tensor the producer's, and its deleter uncalled, so that a PyCapsule stays as it was;
// a capsule is renamed afterwards, to "used_dltensor_versioned". A DataError for a version other
// than 1 and for members that cannot be; a DtypeError for elements that lockstep has not; a
// DeviceError for a device that it has not; a ShapeError for more than eight dimensions; a
// ValueError where a copy would be needed but is forbidden; and from_blob's.
// **Example.** ls::Tensor x = ls::from_dlpack(managed);
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed,
                   const FromDlpackOptions& options = {});

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/dlpack.ipp>
#endif
