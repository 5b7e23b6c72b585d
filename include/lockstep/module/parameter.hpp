// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <utility>

namespace lockstep {

namespace detail {

// Whether it is a parameter whose shape is not known yet. An absent one is not.
inline bool is_uninitialized(const Tensor& tensor) {
  return tensor.defined() && tensor.impl()->uninitialized;
}

// A tensor that has neither shape nor elements.
inline Tensor uninitialized_tensor(const TensorOptions& options) {
  const Tensor tensor = empty({0}, options);
  tensor.impl()->uninitialized = true;
  return tensor;
}

}  // namespace detail

// A tensor that training changes: a member of this type is found by parameters(), moved by to(),
// copied by replicate and saved.
//
// A handle as every Tensor: copies of a Parameter are the same parameter, so copying a module ties
// the copy to the original, and two members that are copies of one another are tied. Made from a
// tensor it is a new leaf on that tensor's memory, and the tensor itself stays as it was. A default
// Parameter is absent: nothing finds it, as with torch's register_parameter(name, None). A plain
// Tensor member that was given requires_grad is refused where parameters are asked for.
//
// A parameter may be made before its shape is known. Such an uninitialised one has a name, a dtype
// and a device, and its handle may be passed on, but it has no elements until it is materialised:
// asking for its shape or elements, as every operation does, is a ModuleError.
//
// **Torch counterpart.** torch.nn.Parameter, torch.nn.UninitializedParameter.
// **Threads and exceptions.** A DtypeError for a tensor that is to require gradients and is of no
// floating-point dtype.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  explicit Parameter(const Tensor& data, bool requires_grad = true)
      : Tensor(data.defined() ? data.detach() : Tensor()) {
    if (defined()) requires_grad_(requires_grad);
  }

  // A parameter that gets its shape later, by `materialize` or by load_state_dict.
  static Parameter uninitialized(const TensorOptions& options = {}, bool requires_grad = true) {
    Parameter parameter;
    static_cast<Tensor&>(parameter) = detail::uninitialized_tensor(
        {.dtype = options.dtype, .device = options.device, .requires_grad = requires_grad});
    return parameter;
  }

  // Whether it has no shape yet.
  //
  // **Torch counterpart.** torch.nn.parameter.is_lazy.
  bool is_uninitialized() const { return detail::is_uninitialized(*this); }

  // Gives it a shape, and elements without values, in place: every handle on it sees them.
  //
  // **Torch counterpart.** UninitializedParameter.materialize.
  // **Devices and streams.** The memory belongs to the current stream of its device.
  // **Threads and exceptions.** A ModuleError if it has a shape already, or is absent. Nobody else
  // may use it at the same time.
  void materialize(const Shape& shape) const {
    check<ModuleError>(defined(), "materialize: the parameter is absent");
    check<ModuleError>(is_uninitialized(), "materialize: the parameter is initialized already");
    set_data(empty(shape, options()));
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
