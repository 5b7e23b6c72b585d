// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// What the collectives that write into existing memory have in common: broadcast_out, scatter_out
// and gather_out.
namespace lockstep::comm::detail {

// Whether a write to one of two tensors could be seen in the other. Only contiguous ones are told
// apart: any other is copied from, or into, by way of a contiguous one.
inline bool overlap(const Tensor& a, const Tensor& b) {
  if (a.impl()->storage != b.impl()->storage || a.numel() == 0 || b.numel() == 0) return false;
  if (!a.is_contiguous() || !b.is_contiguous()) return false;
  const auto begin = [](const Tensor& tensor) {
    return tensor.impl()->offset * static_cast<std::int64_t>(element_size(tensor.dtype()));
  };
  const auto end = [&](const Tensor& tensor) {
    return begin(tensor) + static_cast<std::int64_t>(whole_of(tensor).width);
  };
  return begin(a) < end(b) && begin(b) < end(a);
}

// Throws unless outs[i] can take a result of this shape and dtype.
inline void check_out(const char* operation, const std::vector<Tensor>& outs, std::size_t i,
                      const Shape& shape, Dtype dtype) {
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
}

// Throws if an output lies in the memory of an input.
inline void check_apart(const char* operation, const Tensor& out, std::size_t i,
                        const Tensor& input) {
  check<ValueError>(!overlap(out, input), operation, ": output tensor at index ", i,
                    " shares memory with an input tensor");
}

// A Transfer into a tensor that exists: after all that uses its memory already, and by way of a
// contiguous one where it is strided itself.
class OutTransfer {
 public:
  explicit OutTransfer(const Tensor& out) : OutTransfer(out, copy_stream(out.device())) {}
  OutTransfer(const Tensor& out, const Stream& stream)
      : copies_(stream),
        out_(out),
        room_(out.is_contiguous() ? out : copies_.allocate(out.sizes(), out.dtype())) {
    if (out.is_contiguous()) copies_.overwrite(out);
  }

  const Transfer& copies() const { return copies_; }
  // Where to copy to.
  const Tensor& room() const { return room_; }

  // From here on the device's compute stream may use the result.
  void finish() const {
    copies_.finish(room_);
    if (!out_.is_contiguous()) lockstep::detail::copy_into(out_, room_);
  }

 private:
  Transfer copies_;
  Tensor out_;
  Tensor room_;
};

}  // namespace lockstep::comm::detail
