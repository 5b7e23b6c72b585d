// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/dropout.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

// In training sets elements to 0 with probability p and scales the others by 1 / (1 − p), which
// keeps the mean; otherwise does nothing. Each replica draws its own numbers.
//
// **Torch counterpart.** torch.nn.Dropout.
// **Threads and exceptions.** A ValueError for a probability outside [0, 1]; forward throws what
// lockstep::dropout throws.
// **Example.** nn::Dropout drop{0.1};
struct Dropout {
  double p;
  bool training = true;

  Dropout() : Dropout(0.5) {}
  explicit Dropout(double probability) : p(probability) {
    detail::check_probability("Dropout", probability);
  }

  Tensor forward(const Tensor& x) const { return dropout(x, p, training); }
  Tensor operator()(const Tensor& x) const { return forward(x); }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("training", self.training);
  }
};

}  // namespace lockstep::nn
