// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/collate.hpp>

#include <torch/torch.h>

#include <utility>
#include <vector>

namespace lockstep::data {

// Collates LibTorch's tensors by stacking them along a new first dimension, alone or within
// anything that collate knows. Numbers still become lockstep's tensors: put them in a tensor of
// LibTorch's if they should stay there.
//
// **Torch counterpart.** torch.stack, in torch.utils.data.default_collate.
// **Backward.** Not recorded.
// **Threads and exceptions.** LibTorch's error, which names both shapes, for tensors of different
// shapes.
template <>
struct Collate<at::Tensor> {
  static at::Tensor apply(std::vector<at::Tensor>&& samples) {
    const at::NoGradGuard guard;
    return at::stack(samples);
  }
};

// Examples of LibTorch's data sets become a pair of batches, or without a target the batch of their
// data.
//
// **Torch counterpart.** torch::data::transforms::Stack.
template <class Data, class Target>
struct Collate<::torch::data::Example<Data, Target>> {
  static auto apply(std::vector<::torch::data::Example<Data, Target>>&& samples) {
    std::vector<std::pair<Data, Target>> pairs;
    for (auto& sample : samples) {
      pairs.emplace_back(std::move(sample.data), std::move(sample.target));
    }
    return collate(std::move(pairs));
  }
};
template <class Data>
struct Collate<::torch::data::Example<Data, void>> {
  static auto apply(std::vector<::torch::data::Example<Data, void>>&& samples) {
    std::vector<Data> all;
    for (auto& sample : samples) all.push_back(std::move(sample.data));
    return collate(std::move(all));
  }
};

}  // namespace lockstep::data
