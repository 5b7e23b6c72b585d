// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::comm {

// Concatenates tensors, wherever they are, along `dim` into one on `destination`.
//
// They must agree in dtype and in all other sizes. Tensors without dimensions are taken as vectors
// of one element, whatever `dim` is.
//
// **Torch counterpart.** torch.nn.parallel.comm.gather; the CPU is an ordinary source and target.
// **Devices and streams.** Copied on the destination's copy stream after what is on each source's
// current stream; the destination's current stream waits. A result in plain host memory is complete
// when this returns.
// **Backward.** None: see functions.hpp.
// **Threads and exceptions.** ValueError for no tensors; ShapeError and DtypeError name the index.
inline Tensor gather(const std::vector<Tensor>& tensors, std::int64_t dim, Device destination) {
  check<ValueError>(!tensors.empty(), "gather: expected at least one tensor");
  const bool scalars = tensors[0].dim() == 0;
  Shape shape = scalars ? Shape{1} : tensors[0].sizes();
  const std::size_t along = scalars ? 0 : wrap_dim(dim, shape.size());
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    check<DtypeError>(tensor.dtype() == tensors[0].dtype(), "gather: input tensor at index ", i,
                      " has dtype ", tensor.dtype(), ", but expected ", tensors[0].dtype());
    Shape expected = tensors[0].sizes();
    if (!scalars && tensor.sizes().size() == shape.size()) {
      expected[along] = tensor.sizes()[along];
      rows += tensor.sizes()[along];
    } else {
      rows += 1;
    }
    check<ShapeError>(tensor.sizes() == expected, "gather: input tensor at index ", i,
                      " has invalid shape ", tensor.sizes(), ", but expected ", expected);
  }
  shape[along] = rows;

  const detail::Transfer transfer(destination);
  Tensor result = transfer.allocate(shape, tensors[0].dtype());
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t size = scalars ? 1 : tensor.sizes()[along];
    transfer.copy_in(result, lockstep::detail::packed(tensor),
                     detail::slice_of(shape, tensor.dtype(), along, start, size));
    start += size;
  }
  transfer.finish(result);
  return result;
}

}  // namespace lockstep::comm
