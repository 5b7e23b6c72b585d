// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// State dicts of what is not a module: numbers are tensors of one element in them, so that the
// whole can be kept in a file of tensors.
namespace lockstep::detail {

template <Element T>
NamedTensor named_number(std::string name, T value) {
  return {std::move(name), scalar_tensor(value)};
}

// Takes a state dict apart. What is missing or does not fit is collected, with whatever nobody
// asked for, and `finish` throws all of it at once: the caller changes nothing before.
class StateReader {
 public:
  // `what` begins the message and outlives the reader.
  StateReader(std::string_view what, const StateDict& dict);

  // A number, which the dict has to have; 0 if it has not.
  template <Element T>
  T number(const std::string& name) {
    const Tensor tensor = take(name);
    if (!tensor.defined()) {
      missing(name);
      return 0;
    }
    if (is_uninitialized(tensor) || tensor.numel() != 1 || tensor.dtype() != dtype_of<T>) {
      misfit(name, str("has to be one number of ", dtype_of<T>));
      return 0;
    }
    const Tensor host = empty(tensor.sizes(), {.dtype = tensor.dtype()});
    copy_into(host, tensor);
    return *host.const_data_ptr<T>();
  }

  // Whether a name that begins so is left.
  bool has_any(const std::string& prefix) const;

  // A copy of a tensor, which the dict has to have, with the dtype and device of `like`, whose
  // shape it has to have.
  Tensor copy(const std::string& name, const Tensor& like);

  // The indices of a list, which has to be `count` long.
  void expect_indices(const std::string& name, std::size_t count);

  void misfit(const std::string& name, std::string_view why);

  // Throws a ModuleError that lists every problem, if there is one.
  void finish() const;

 private:
  void missing(const std::string& name) { missing_.push_back(name); }

  Tensor take(const std::string& name);

  std::string_view what_;
  std::map<std::string, Tensor, std::less<>> left_;
  std::vector<std::string> missing_;
  std::vector<std::string> misfits_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/state_reader.ipp>
#endif
