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

// What lent memory is like, and how it is given back.
struct BlobOptions {
  Shape strides = {};                    // in elements; empty: row-major
  std::optional<Dtype> dtype = {};       // of a void pointer's elements; f32 by default
  Device device = {};                    // where the memory is
  std::function<void(void*)> deleter{};  // called with the pointer to give the memory back
  std::shared_ptr<const void> owner{};   // or: held for as long as the memory is in use
  bool requires_grad = false;
};

namespace detail {

// Errors name `operation`.
Tensor lend(const char* operation, void* data, const Shape& shape, BlobOptions options);

}  // namespace detail

// A tensor on the program's own memory, which is lent, not copied: what is written through the one
// is seen through the other.
//
// The memory must stay valid until the last tensor on it is gone and all work issued with it has
// ended. Then the deleter is called, once, or the owner released; without either the program must
// find out itself, for example by `synchronize`. The program may use the memory itself while no
// such work is unfinished; call `mark_changed` after writing to it, so that backward notices. Do
// not lend the same memory twice: the two tensors would not be ordered with each other. Lend it
// once, and take copies or views of the tensor.
//
// **Torch counterpart.** torch::from_blob, torch::TensorMaker. The deleter of torch does not wait
// for work on streams.
// **Devices and streams.** The memory belongs to the device's current stream, like new memory; the
// caller must order that stream after earlier work on it. Host memory may be lent to plain `cpu` or
// to any host device; `is_pinned` is false even if it is page-locked.
// **Backward.** The result is a leaf.
// **Threads and exceptions.** The deleter runs in the thread that drops the last tensor, or, if
// work still uses the memory, in a background thread after that work. It must not throw
// (std::terminate) or wait for other work of lockstep's. It is never called if nobody can know that
// the work has ended: the GPU has failed, memory has run out, the process was forked since, or
// `main` has returned in a program that uses GPUs. An error leaves the memory to the caller and
// does not call the deleter: a ValueError for a null pointer to elements, memory not aligned to
// their size, a negative stride, or both a deleter and an owner; a ShapeError for a negative size
// or a wrong number of strides; a DtypeError for a dtype that is not T's; a DeviceError for a
// device that does not exist or on which the memory is known not to be.
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
