// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace lockstep {

// What lent memory is like, and who gets it back.
struct BlobOptions {
  Shape strides = {};               // in elements; empty: row-major
  std::optional<Dtype> dtype = {};  // of a void pointer's elements: f32 if nothing else is said
  Device device = {};               // where the memory is
  std::function<void(void*)> deleter{};  // is called with the pointer when the memory is given back
  std::shared_ptr<const void> owner{};   // or this is held as long as the memory is in use
  bool requires_grad = false;
};

namespace detail {

// `operation` is what errors call it.
Tensor lend(const char* operation, void* data, const Shape& shape, BlobOptions options);

}  // namespace detail

// A tensor on memory of the program's own, which is lent and not copied: what is written to the
// one is in the other.
//
// The memory must live, and stay where it is, until the last tensor on it is gone and work that was
// issued with it has ended; then the deleter is called, once, or the owner let go. With neither the
// program itself has to know when that is, from `synchronize` for instance. The program may read
// and write the memory itself while no such work is unfinished; a change counts for backward after
// `mark_changed`. Two tensors on memory that was lent twice know nothing of each other: lend it
// once, and take copies or views of the tensor.
//
// **Torch counterpart.** torch::from_blob, torch::TensorMaker. The deleter of torch does not wait
// for work on streams.
// **Devices and streams.** The memory belongs to the current stream of the device, as new memory
// does; the caller has ordered that stream after what others have still to do with it. Host memory
// is plain `cpu`'s or that of any one host device, as `device` says; `is_pinned` is false even if
// it is page-locked.
// **Backward.** A leaf.
// **Threads and exceptions.** The deleter runs in the thread that drops the last tensor, whichever
// that is, if no work uses the memory any more, otherwise in a background thread after that work.
// It must not throw (std::terminate) nor wait for other work of lockstep's. It is not called where
// nobody can know that the work has ended: its GPU has failed, there is no memory left to note the
// order, the process was forked since, or `main` has returned in a program that uses GPUs.
// An error leaves the memory the caller's, and the deleter uncalled: a ValueError for a null
// pointer to elements, memory that is not aligned to their size, a negative stride, or both a
// deleter and an owner; a ShapeError for a negative size, or for strides of another number than
// sizes; a DtypeError for a dtype that is not T's; a DeviceError for a device that does not exist,
// or on which the memory is known not to be.
// **Example.** ls::Tensor image = ls::from_blob(pixels->data(), {28, 28}, {.owner = pixels});
template <class T>
requires(std::is_void_v<T> || Element<T>) Tensor
    from_blob(T* data, const Shape& shape, BlobOptions options = {}) {
  if constexpr (!std::is_void_v<T>) {
    check<DtypeError>(options.dtype.value_or(dtype_of<T>) == dtype_of<T>,
                      "from_blob: expected no other dtype than the pointer's, ", dtype_of<T>,
                      ", got ", options.dtype.value_or(dtype_of<T>));
    options.dtype = dtype_of<T>;
  }
  return detail::lend("from_blob", data, shape, std::move(options));
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/from_blob.ipp>
#endif
