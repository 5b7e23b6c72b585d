// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/lent.hpp>
#include <lockstep/torch/module_copy.hpp>
#include <lockstep/torch/streams.hpp>

#include <torch/torch.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

// Presents a module of LibTorch's as one of lockstep's: its parameters and buffers, by name, on its
// memory. They have no graph of their own.
template <class Net>
class LentModule {
 public:
  LentModule(std::shared_ptr<Net> net, Device device)
      : net_(std::move(net)), device_(device), originals_(tensors_of(*net_)) {
    std::unordered_map<const c10::TensorImpl*, Tensor> known;  // so that tied ones stay tied
    for (const ModuleTensor& original : originals_) {
      const at::Tensor& tensor = original.tensor;
      Tensor& here = known[tensor.unsafeGetTensorImpl()];
      if (!here.defined()) {
        here = lent(original);
        if (original.parameter) here = Parameter(here, tensor.requires_grad());
      }
      if (original.parameter) {
        parameters_.push_back({original.name, static_cast<const Parameter&>(here)});
      } else {
        buffers_.push_back({original.name, Buffer(here)});
      }
    }
  }

  const std::shared_ptr<Net>& net() const { return net_; }
  const std::vector<ModuleTensor>& originals() const { return originals_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

  // Follows the module's tensors to other memory, as torch::load moves them, and their
  // requires_grad. A ModuleError if a tensor was replaced or its shape, dtype or device changed.
  void refresh() {
    check_same_tensors(originals_, tensors_of(*net_), kAdvice);
    for (std::size_t j = 0; j < originals_.size(); ++j) {
      const at::Tensor& now = originals_[j].tensor;
      const Tensor& here = tensor(j);
      const bool moved = !same_memory(now, here);
      lockstep::check<ModuleError>(
          !moved || (is_on(now, device_) && lockstep_dtype(now.scalar_type()) == here.dtype() &&
                     now.sizes() == sizes_of(here.sizes())),
          originals_[j].kind(), " \"", originals_[j].name, "\" was of shape ", here.sizes(),
          " and ", here.dtype(), " on ", device_, " when the module was wrapped, and is of shape ",
          now.sizes(), " and ", now.scalar_type(), " on ", now.device().str(), " now");
      if (moved) here.set_data(lent(originals_[j]));
      if (originals_[j].parameter) here.requires_grad_(now.requires_grad());
    }
  }

  template <class... Args>
  auto forward(const Args&... args) requires requires(Net& net) {
    { net.forward(args...) } -> std::move_constructible;
  }
  {
    wait_for_lockstep(device_);  // for buffers from another rank
    return net_->forward(args...);
  }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    for (auto& [name, parameter] : self.parameters_) visit(name, parameter);
    for (auto& [name, buffer] : self.buffers_) visit(name, buffer);
  }

 private:
  static constexpr const char* kAdvice =
      " since the module was wrapped: write into what was there, with copy_ or set_data";

  Tensor lent(const ModuleTensor& original) const {
    return detail::lent(original.tensor, device_,
                        lockstep::detail::str(original.kind(), " \"", original.name, "\""));
  }
  const Tensor& tensor(std::size_t j) const {
    if (j < parameters_.size()) return parameters_[j].tensor;
    return buffers_[j - parameters_.size()].tensor;
  }

  std::shared_ptr<Net> net_;
  Device device_;
  std::vector<ModuleTensor> originals_;  // the parameters, then the buffers
  std::vector<NamedParameter> parameters_;
  std::vector<NamedBuffer> buffers_;
};

}  // namespace lockstep::libtorch::detail
