// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/parameters.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::optim {

// The parameters of an optimiser, of one of its groups or of clip_grad_norm_, with or without the
// names that messages use. Every list of either converts to it.
//
// **Example.** optim::SGD sgd{named_parameters(net), {.lr = 0.1}};
class ParameterList {
 public:
  ParameterList() = default;
  ParameterList(std::initializer_list<Tensor> tensors)
      : tensors_(tensors), names_(tensors.size()) {}
  template <std::derived_from<Tensor> T>
  ParameterList(const std::vector<T>& tensors)
      : tensors_(tensors.begin(), tensors.end()), names_(tensors.size()) {}
  template <std::derived_from<Tensor> T>
  ParameterList(const std::vector<Named<T>>& named) {
    for (const auto& [name, tensor] : named) {
      tensors_.push_back(tensor);
      names_.push_back(name);
    }
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  // One for each tensor, empty if none was given.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;
};

}  // namespace lockstep::optim
