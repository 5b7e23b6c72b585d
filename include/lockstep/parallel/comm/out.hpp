// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

// The checks and copies that broadcast_out, scatter_out and gather_out share: these write into
// tensors that exist.
namespace lockstep::comm::detail {

// True if two contiguous tensors share elements. False where one is strided: its elements go
// through a contiguous copy, so that a collective does not read what it is writing.
bool overlap(const Tensor& a, const Tensor& b);

// Throws unless outs[i] can take a result of this shape and dtype, and shares no memory with an
// earlier out.
void check_out(const char* operation, const std::vector<Tensor>& outs, std::size_t i,
               const Shape& shape, Dtype dtype);

// Throws a ValueError if `out`, number `i`, shares memory with an input.
void check_apart(const char* operation, const Tensor& out, std::size_t i, const Tensor& input);

// A Transfer into a tensor that exists, after everything issued before that uses its memory. Where
// that tensor is strided the copies go into a contiguous one, whose elements `finish` copies over.
class OutTransfer {
 public:
  explicit OutTransfer(const Tensor& out) : OutTransfer(out, copy_stream(out.device())) {}
  OutTransfer(const Tensor& out, const Stream& stream);

  const Transfer& copies() const { return copies_; }
  // The contiguous tensor to copy into: `out` or, where that is strided, a temporary one.
  const Tensor& room() const { return room_; }

  // Makes the device's compute stream wait for the copies; from here on it may use `out`.
  void finish() const;

 private:
  Transfer copies_;
  Tensor out_;
  Tensor room_;
};

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/impl/out.ipp>
#endif
