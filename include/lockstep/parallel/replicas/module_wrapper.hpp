// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>

#include <utility>
#include <vector>

namespace lockstep::detail {

// A member of classes that refuse calls once they have been moved from.
class MovedFrom {
 public:
  MovedFrom() = default;
  MovedFrom(const MovedFrom&) = default;
  MovedFrom(MovedFrom&& other) noexcept : value_(std::exchange(other.value_, true)) {}
  MovedFrom& operator=(const MovedFrom&) = default;
  MovedFrom& operator=(MovedFrom&& other) noexcept {
    value_ = other.value_;
    other.value_ = true;  // last: an object moved to itself has lost its members, too
    return *this;
  }
  ~MovedFrom() = default;

  void check(const char* what) const {
    lockstep::check<ModuleError>(!value_, what, ": the model has been moved from");
  }

 private:
  bool value_ = false;
};

// The base of DataParallel and DistributedDataParallel: owns the module and gives its parameters
// and buffers under their own names.
template <class M>
class ModuleWrapper {
 public:
  M& module() { return module_; }
  const M& module() const { return module_; }

  std::vector<Parameter> parameters() const { return lockstep::parameters(module_); }
  std::vector<NamedParameter> named_parameters() const {
    return lockstep::named_parameters(module_);
  }
  std::vector<Buffer> buffers() const { return lockstep::buffers(module_); }
  StateDict state_dict() const { return lockstep::state_dict(module_); }
  LoadResult load_state_dict(const StateDict& dict, bool strict = true) {
    return lockstep::load_state_dict(module_, dict, strict);
  }
  void train(bool on = true) { lockstep::train(module_, on); }
  void eval() { lockstep::eval(module_); }
  void zero_grad() { lockstep::zero_grad(module_); }

  // Makes whatever walks a module walk the wrapped one instead.
  template <class Self>
  static auto& wrapped_module(Self& self) {
    return self.module();
  }

 protected:
  explicit ModuleWrapper(M module) : module_(std::move(module)) {}

  // A const wrapper can be called, whether or not the module's forward is const.
  mutable M module_;
  MovedFrom moved_from_;
};

}  // namespace lockstep::detail
