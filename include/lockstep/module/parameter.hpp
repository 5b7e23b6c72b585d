// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <utility>

namespace lockstep {

// A tensor that training changes: a member of this type is found by parameters(), moved by to(),
// copied by replicate and saved.
//
// A handle as every Tensor: copies of a Parameter are the same parameter, so copying a module ties
// the copy to the original, and two members that are copies of one another are tied. Made from a
// tensor it is a new leaf on that tensor's memory, and the tensor itself stays as it was. A default
// Parameter is absent: nothing finds it, as with torch's register_parameter(name, None).
//
// **Torch counterpart.** torch.nn.Parameter.
// **Threads and exceptions.** A DtypeError for a tensor that is to require gradients and is of no
// floating-point dtype.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  explicit Parameter(const Tensor& data, bool requires_grad = true)
      : Tensor(data.defined() ? data.detach() : Tensor()) {
    if (defined()) requires_grad_(requires_grad);
  }
};

// A tensor that belongs to a module's state but is not trained, such as a running mean: moved,
// copied and saved with the module, and not among parameters().
//
// The tensor it is made from is taken as it is, not copied: both handles name one variable. A
// default Buffer is absent. A plain Tensor member is neither parameter nor buffer: it stays where
// it is, and copies of the module share it.
//
// **Torch counterpart.** torch.nn.Buffer, Module.register_buffer.
class Buffer : public Tensor {
 public:
  Buffer() = default;
  explicit Buffer(Tensor data) : Tensor(std::move(data)) {}
};

}  // namespace lockstep
