// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/dropout.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

// In training sets elements to 0 with probability p and enlarges the others by 1 / (1 − p), so that
// the mean stays; else it does nothing.
//
// **Torch counterpart.** torch.nn.Dropout.
// **Threads and exceptions.** A ValueError for a probability outside [0, 1]; forward's are those of
// lockstep::dropout. Each replica draws numbers of its own.
// **Example.** nn::Dropout drop{0.1};
struct Dropout {
  double p;
  bool training = true;

  explicit Dropout(double probability = 0.5) : p(probability) {
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
