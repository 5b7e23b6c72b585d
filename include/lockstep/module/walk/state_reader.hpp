// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// State dicts of objects other than modules, such as optimisers. Numbers in them are tensors of one
// element, so that a file of tensors can hold everything.
namespace lockstep::detail {

template <Element T>
NamedTensor named_number(std::string name, T value) {
  return {std::move(name), scalar_tensor(value)};
}

// Reads the entries of a state dict. It collects what is missing, does not fit, or is never read,
// and `finish` throws one error that lists everything; so the caller changes nothing before that.
class StateReader {
 public:
  // The message begins with `what`, which must outlive the reader.
  StateReader(std::string_view what, const StateDict& dict);

  // The number of this name. If the dict has none, notes that and returns 0.
  template <Element T>
  T number(const std::string& name) {
    const Tensor tensor = take(name);
    if (!tensor.defined()) return 0;
    if (tensor.numel() != 1 || tensor.dtype() != dtype_of<T>) {
      misfit(name, str("has to be one number of ", dtype_of<T>));
      return 0;
    }
    return *contiguous_on_host(tensor).const_data_ptr<T>();
  }

  // The count of this name, of i64 or, as torch counts an optimiser's steps, of f32. It does not
  // fit if it is negative or so large that counting could not continue.
  std::int64_t count(const std::string& name);

  // Whether an entry whose name begins with `prefix` is still unread.
  bool has_any(const std::string& prefix) const;

  // A copy of the tensor of this name, with the dtype and device of `like`. If the dict has none of
  // the shape of `like`, notes that and returns an undefined one.
  Tensor copy(const std::string& name, const Tensor& like);

  // Reads the list of this name. If it does not have `count` entries, notes that.
  void expect_indices(const std::string& name, std::size_t count);

  void misfit(const std::string& name, std::string_view why);

  // Throws a ModuleError that lists every problem, if there is one.
  void finish() const;

 private:
  // The tensor of this name. If there is none, or it is uninitialised or sparse, notes that and
  // returns an undefined one.
  Tensor take(const std::string& name);

  std::string_view what_;
  std::map<std::string, Tensor, std::less<>> left_;
  std::vector<std::string> missing_;
  std::vector<std::string> misfits_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/module/walk/impl/state_reader.ipp>
#endif
