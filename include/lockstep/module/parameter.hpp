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

// Whether the tensor is a parameter whose shape is not known yet. An absent one is not.
inline bool is_uninitialized(const Tensor& tensor) {
  return tensor.defined() && tensor.impl()->uninitialized;
}

// A tensor without shape and elements.
inline Tensor uninitialized_tensor(const TensorOptions& options) {
  const Tensor tensor = empty({0}, options);
  tensor.impl()->uninitialized = true;
  return tensor;
}

}  // namespace detail

// A tensor that training changes. parameters() finds members of this type, to() moves them,
// replicate copies them, and state_dict lists them.
//
// A Parameter is a handle like every Tensor: copies are the same parameter, so a copy of a module
// is tied to the original. Made from a tensor, it is a new leaf on that tensor's memory; the tensor
// itself stays as it was. A default Parameter is absent, as with torch's register_parameter(name,
// None). A plain Tensor member that requires grad is refused wherever parameters are asked for.
//
// A parameter whose shape is not known yet is uninitialised: it has a name, a dtype and a device,
// and its handle may be passed on, but asking for its shape or elements, as every operation does,
// is a ModuleError until it is materialised.
//
// **Torch counterpart.** torch.nn.Parameter, torch.nn.UninitializedParameter.
// **Threads and exceptions.** A DtypeError for a tensor that should require gradients but is not of
// a floating-point dtype.
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

  // Whether the parameter has no shape yet.
  //
  // **Torch counterpart.** torch.nn.parameter.is_lazy.
  bool is_uninitialized() const { return detail::is_uninitialized(*this); }

  // Gives the parameter a shape and uninitialised elements, in place: every handle sees them.
  //
  // **Torch counterpart.** UninitializedParameter.materialize.
  // **Devices and streams.** The memory belongs to the current stream of its device.
  // **Threads and exceptions.** A ModuleError if it has a shape already or is absent. No other
  // thread may use it meanwhile.
  void materialize(const Shape& shape) const {
    check<ModuleError>(defined(), "materialize: the parameter is absent");
    check<ModuleError>(is_uninitialized(), "materialize: the parameter is initialized already");
    set_data(empty(shape, options()));
  }
};

// A tensor that belongs to a module's state but is not trained, such as a running mean. It is
// moved, copied and saved with the module, but is not among parameters().
//
// A Buffer made from a tensor is another handle on the same variable, not a copy. A default Buffer
// is absent. A plain Tensor member is neither parameter nor buffer: it stays on its device, and
// copies of the module share it.
//
// **Torch counterpart.** torch.nn.Buffer, Module.register_buffer.
class Buffer : public Tensor {
 public:
  Buffer() = default;
  explicit Buffer(Tensor data) : Tensor(std::move(data)) {}
};

}  // namespace lockstep
