// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/memory_range.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <span>
#include <vector>

// The checks and copies that broadcast_out, scatter_out and gather_out share.
namespace lockstep::comm::detail {

// True if two contiguous tensors share elements. A strided one does not count: its elements go
// through a contiguous copy, so no collective reads what it writes.
inline bool overlap(const Tensor& a, const Tensor& b) {
  return a.is_contiguous() && b.is_contiguous() &&
         lockstep::detail::MemoryRange(a).meets(lockstep::detail::MemoryRange(b));
}

// Throws unless outs[i] can take a result of this shape and dtype and shares no memory with an
// earlier out or an input.
inline void check_out(const char* operation, const std::vector<Tensor>& outs, std::size_t i,
                      const Shape& shape, Dtype dtype, std::span<const Tensor> inputs) {
  const Tensor& out = outs[i];
  check<ValueError>(out.defined(), operation, ": output tensor at index ", i, " is undefined");
  check<ShapeError>(out.sizes() == shape, operation, ": output tensor at index ", i,
                    " has invalid shape ", out.sizes(), ", but expected ", shape);
  check<DtypeError>(out.dtype() == dtype, operation, ": output tensor at index ", i, " has dtype ",
                    out.dtype(), ", but expected ", dtype);
  lockstep::detail::check_changeable(out, operation);
  for (std::size_t j = 0; j < i; ++j) {
    check<ValueError>(!overlap(outs[j], out), operation, ": output tensors ", j, " and ", i,
                      " share memory");
  }
  for (const Tensor& input : inputs) {
    check<ValueError>(!overlap(out, input), operation, ": output tensor at index ", i,
                      " shares memory with an input tensor");
  }
}

// A Transfer into an existing tensor, after all work issued before that uses its memory. Copies for
// a strided tensor go into a contiguous one, which `finish` copies over.
class OutTransfer {
 public:
  explicit OutTransfer(const Tensor& out) : OutTransfer(out, copy_stream(out.device())) {}
  OutTransfer(const Tensor& out, const Stream& stream)
      : transfer_(stream),
        out_(out),
        target_(out.is_contiguous() ? out : transfer_.allocate(out.sizes(), out.dtype())) {
    if (out.is_contiguous()) transfer_.overwrite(out);
  }

  const Transfer& transfer() const { return transfer_; }
  // The contiguous tensor to copy into: `out`, or a temporary one if that is strided.
  const Tensor& target() const { return target_; }

  // Makes the device's compute stream wait for the copies, so that it may use `out`.
  void finish() const {
    transfer_.finish(target_);
    if (!out_.is_contiguous()) lockstep::detail::copy_into(out_, target_);
  }

 private:
  Transfer transfer_;
  Tensor out_;
  Tensor target_;
};

}  // namespace lockstep::comm::detail
