// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <vector>

// Second derivatives of operations whose backward is a kernel. They are computed from the
// operation's composed form, which consists of elementary operations.
namespace lockstep::detail {

// The same tensor as another variable.
struct AliasOp {
  static constexpr const char* name = "alias";
  Tensor forward(const Tensor& x) const { return x; }
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

// The recorded gradients of the arguments that require grad, from those of the results of
// `composed`, a function of all arguments that returns a vector. Some of either may be undefined.
template <std::size_t N, class Composed>
std::array<Tensor, N> composed_grads(const std::array<Tensor, N>& arguments,
                                     const std::vector<Tensor>& grads, const Composed& composed) {
  // Aliases, since one argument may have been computed from another: these gradients stop at the
  // aliases, and the outer graph continues from the arguments.
  std::array<Tensor, N> aliases;
  std::vector<Tensor> wanted;
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < N; ++i) {
    const Tensor& tensor = arguments[i];
    if (!tensor.defined()) continue;
    aliases[i] = apply(AliasOp{}, tensor);
    if (!tensor.requires_grad()) continue;
    wanted.push_back(aliases[i]);
    indices.push_back(i);
  }
  const std::vector<Tensor> results = composed(aliases);
  std::vector<Tensor> roots;
  std::vector<Tensor> given;
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!grads[k].defined()) continue;
    roots.push_back(results[k]);
    given.push_back(grads[k]);
  }
  const std::vector<Tensor> found = autograd::grad(roots, wanted, given, true, true, true);
  std::array<Tensor, N> all;
  for (std::size_t i = 0; i < indices.size(); ++i) all[indices[i]] = found[i];
  return all;
}

}  // namespace lockstep::detail
