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

// What the collectives that write into existing memory have in common: broadcast_out, scatter_out
// and gather_out.
namespace lockstep::comm::detail {

// Whether a write to one of two tensors could be seen in the other. Only contiguous ones are told
// apart: any other is copied from, or into, by way of a contiguous one.
bool overlap(const Tensor& a, const Tensor& b);

// Throws unless outs[i] can take a result of this shape and dtype.
void check_out(const char* operation, const std::vector<Tensor>& outs, std::size_t i,
               const Shape& shape, Dtype dtype);

// Throws if an output lies in the memory of an input.
void check_apart(const char* operation, const Tensor& out, std::size_t i, const Tensor& input);

// A Transfer into a tensor that exists: after all that uses its memory already, and by way of a
// contiguous one where it is strided itself.
class OutTransfer {
 public:
  explicit OutTransfer(const Tensor& out) : OutTransfer(out, copy_stream(out.device())) {}
  OutTransfer(const Tensor& out, const Stream& stream);

  const Transfer& copies() const { return copies_; }
  // Where to copy to.
  const Tensor& room() const { return room_; }

  // From here on the device's compute stream may use the result.
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
