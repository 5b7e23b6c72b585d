// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/comm/out.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE bool overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (!a.is_contiguous() || !b.is_contiguous()) return false;
  // Memory may have been lent twice, so it does not suffice to compare the storages.
  const auto begin = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.impl()->data());
  };
  const auto end = [&](const Tensor& tensor) { return begin(tensor) + whole_of(tensor).width; };
  return begin(a) < end(b) && begin(b) < end(a);
}

LOCKSTEP_INLINE void check_out(const char* operation, const std::vector<Tensor>& outs,
                               std::size_t i, const Shape& shape, Dtype dtype) {
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

LOCKSTEP_INLINE void check_apart(const char* operation, const Tensor& out, std::size_t i,
                                 const Tensor& input) {
  check<ValueError>(!overlap(out, input), operation, ": output tensor at index ", i,
                    " shares memory with an input tensor");
}

LOCKSTEP_INLINE OutTransfer::OutTransfer(const Tensor& out, const Stream& stream)
    : copies_(stream),
      out_(out),
      room_(out.is_contiguous() ? out : copies_.allocate(out.sizes(), out.dtype())) {
  if (out.is_contiguous()) copies_.overwrite(out);
}

LOCKSTEP_INLINE void OutTransfer::finish() const {
  copies_.finish(room_);
  if (!out_.is_contiguous()) lockstep::detail::copy_into(out_, room_);
}

}  // namespace lockstep::comm::detail
