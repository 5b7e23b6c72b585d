// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dlpack.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lockstep::detail {

inline constexpr std::uint32_t kDlpackMajor = 1;

// A tensor that was passed to a consumer.
struct Exported {
  Tensor tensor;  // a variable of its own, so that its shape and strides never change
  dlpack::DLManagedTensorVersioned managed;
};

// The types of the dtypes' elements, in the order of the enumeration.
inline constexpr dlpack::DLDataType kDlpackTypes[] = {
    {dlpack::kDLFloat, 32, 1},  {dlpack::kDLFloat, 64, 1}, {dlpack::kDLFloat, 16, 1},
    {dlpack::kDLBfloat, 16, 1}, {dlpack::kDLInt, 64, 1},   {dlpack::kDLInt, 32, 1},
    {dlpack::kDLUInt, 8, 1},    {dlpack::kDLBool, 8, 1}};

// NumPy's name for it, if there is one.
LOCKSTEP_INLINE std::string dlpack_name(const dlpack::DLDataType& type) {
  constexpr const char* kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string name = type.code < std::size(kNames)
                         ? str(kNames[type.code], int{type.bits})
                         : str("code ", int{type.code}, " of ", int{type.bits}, " bits");
  if (type.lanes != 1) name += str(" in vectors of ", type.lanes);
  return name;
}

LOCKSTEP_INLINE Dtype dtype_of_dlpack(const dlpack::DLDataType& type) {
  for (std::size_t i = 0; i < std::size(kDlpackTypes); ++i) {
    const dlpack::DLDataType& known = kDlpackTypes[i];
    if (type.code == known.code && type.bits == known.bits && type.lanes == 1) {
      return static_cast<Dtype>(i);
    }
  }
  fail<DtypeError>("from_dlpack: expected f32, f64, f16, bf16, i64, i32, u8 or bool, got ",
                   dlpack_name(type));
}

// The device of a producer's memory.
LOCKSTEP_INLINE Device device_of_dlpack(const dlpack::DLDevice& device) {
  const dlpack::DLDeviceType type = device.device_type;
  if (type == dlpack::kDLCPU || type == dlpack::kDLCUDAHost) return {};
  check<DeviceError>(type == dlpack::kDLCUDA,
                     "from_dlpack: expected memory of kDLCPU (1), kDLCUDA ",
                     "(2) or kDLCUDAHost (3), got device type ", static_cast<int>(type));
  const Device cuda(DeviceType::cuda, device.device_id);
  check_device(cuda);
  return cuda;
}

// True if memory of `place` is memory of `device` as well.
LOCKSTEP_INLINE bool same_memory(Device device, Device place) {
  if (device.type != place.type) return false;
  Backend& backend = backend_of(device);
  return backend.native_index(device) == backend.native_index(place);
}

// The sizes or strides of a producer's tensor.
LOCKSTEP_INLINE Shape shape_of_dlpack(const char* what, const std::int64_t* values, int count) {
  check<DataError>(values != nullptr || count == 0, "from_dlpack: expected ", count, " ", what,
                   ", got a null pointer");
  const auto most = static_cast<int>(Shape::kMaxDims);
  check<ShapeError>(count <= most, "from_dlpack: expected at most ", most, " dimensions, got ",
                    count);
  return Shape(std::span(values, static_cast<std::size_t>(count)));
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE dlpack::DLDevice dlpack_device(const Tensor& tensor) {
  const Device device = tensor.device();
  if (device.is_cuda()) {
    return {dlpack::kDLCUDA, detail::backend_of(device).native_index(device)};
  }
  return {tensor.impl()->storage->is_pinned() ? dlpack::kDLCUDAHost : dlpack::kDLCPU, 0};
}

LOCKSTEP_INLINE std::optional<std::intptr_t> dlpack_stream(const Stream& stream) {
  if (stream.device().is_cpu()) return std::nullopt;
  return detail::backend_of(stream.device()).native_handle(stream.state());
}

LOCKSTEP_INLINE dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor,
                                                            std::optional<std::intptr_t> stream) {
  constexpr std::intptr_t kLegacyStream = 1;
  constexpr std::intptr_t kNoOrder = -1;
  (void)tensor.strides();  // throws for a sparse tensor
  const Device device = tensor.device();
  check<AutogradError>(!tensor.impl()->requires_grad, "to_dlpack: a tensor of shape ",
                       tensor.sizes(), " on ", device,
                       " requires grad, of which other libraries know nothing: detach() it first");
  const std::intptr_t consumer = stream.value_or(kLegacyStream);
  check<ValueError>(!device.is_cpu() || !stream || consumer == kNoOrder,
                    "to_dlpack: expected no stream for a tensor on ", device, ", got ", consumer);
  check<ValueError>(consumer > 0 || consumer == kNoOrder,
                    "to_dlpack: expected -1, 1 (the legacy default stream), 2 (the thread's) or a "
                    "cudaStream_t, got ",
                    consumer);

  auto exported =
      std::make_unique<detail::Exported>(detail::Exported{detail::make_view(tensor), {}});
  exported->managed = {
      .version = {detail::kDlpackMajor, 0},
      .manager_ctx = exported.get(),
      .deleter =
          [](dlpack::DLManagedTensorVersioned* self) {
            delete static_cast<detail::Exported*>(self->manager_ctx);
          },
      .flags = 0,
      .dl_tensor = {.data = tensor.numel() == 0 ? nullptr : tensor.impl()->data(),
                    .device = dlpack_device(tensor),
                    .ndim = static_cast<std::int32_t>(tensor.dim()),
                    .dtype = detail::kDlpackTypes[static_cast<std::size_t>(tensor.dtype())],
                    .shape = exported->tensor.impl()->shape.begin(),
                    .strides = exported->tensor.impl()->strides.begin(),
                    .byte_offset = 0}};

  if (consumer != kNoOrder) {
    const Stream own = current_stream(device);
    tensor.impl()->storage->order_write(own);
    detail::backend_of(device).hand_over(own.state(), consumer);
  }
  return &exported.release()->managed;
}

LOCKSTEP_INLINE Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed,
                                   const FromDlpackOptions& options) {
  check<ValueError>(managed != nullptr, "from_dlpack: expected a tensor, got a null pointer");
  check<DataError>(managed->version.major == detail::kDlpackMajor,
                   "from_dlpack: expected a tensor of DLPack 1, got one of ",
                   managed->version.major, ".", managed->version.minor);
  const dlpack::DLTensor& from = managed->dl_tensor;
  check<DataError>(from.ndim >= 0, "from_dlpack: expected 0 dimensions or more, got ", from.ndim);
  const Shape sizes = detail::shape_of_dlpack("sizes", from.shape, from.ndim);
  BlobOptions blob{.dtype = detail::dtype_of_dlpack(from.dtype)};
  if (from.strides) blob.strides = detail::shape_of_dlpack("strides", from.strides, from.ndim);
  auto* const data = from.data ? static_cast<std::byte*>(from.data) + from.byte_offset : nullptr;

  const Device place = detail::device_of_dlpack(from.device);
  const Device device = options.device.value_or(place);
  check_device(device);
  const bool read_only = (managed->flags & dlpack::kReadOnly) != 0;
  const bool shared = !read_only && detail::same_memory(device, place);
  if (shared && !options.copy.value_or(false)) {
    blob.device = device;
    if (managed->deleter) blob.deleter = [managed](void*) { managed->deleter(managed); };
    return detail::lend("from_dlpack", data, sizes, std::move(blob));
  }
  check<ValueError>(options.copy.value_or(true), "from_dlpack: only a copy can be ",
                    read_only ? "written, since the memory is read-only" : "on ",
                    read_only ? "" : device.str(), ", and none is allowed");
  blob.device = place;
  const Tensor source = detail::lend("from_dlpack", data, sizes, std::move(blob));
  const Tensor result = detail::copy_as(source, {.dtype = source.dtype(), .device = device});
  for (const Device end : {place, device}) current_stream(end).synchronize();
  if (managed->deleter) managed->deleter(managed);
  return result;
}

}  // namespace lockstep
