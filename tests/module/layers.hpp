// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

// Modules of every form, small enough to see through, for the tests of this directory.
namespace lockstep::testing {

// A parameter and a buffer with these values. Kept out of line, as inlining them into every
// constructor makes the sanitizers' builds slow.
[[gnu::noinline]] inline Parameter parameter(const std::vector<float>& values) {
  return Parameter(from_values(values, {static_cast<std::int64_t>(values.size())}));
}
[[gnu::noinline]] inline Buffer buffer(const std::vector<float>& values) {
  return Buffer(from_values(values, {static_cast<std::int64_t>(values.size())}));
}

// An aggregate with two parameters.
struct Scale {
  Parameter weight = parameter({1, 2});
  Parameter bias = parameter({3});

  Tensor forward(const Tensor& x) const { return x; }
};

// A class that gives its members through the hook.
class Norm {
 public:
  explicit Norm(float momentum) : momentum_(momentum) {}

  Tensor operator()(const Tensor& x) const { return x; }
  bool is_training() const { return training_; }
  const Buffer& running_mean() const { return running_mean_; }

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight_);
    visit("running_mean", self.running_mean_);
    visit("training", self.training_);
  }

 private:
  [[maybe_unused]] float momentum_;
  Parameter weight_ = parameter({1});
  Buffer running_mean_ = buffer({0});
  bool training_ = true;
};

// A module without parameters that knows whether it is trained.
struct Noise {
  float p = 0.5F;
  bool training = true;

  Tensor forward(const Tensor& x) const { return x; }
};

template <class Entries>
std::vector<std::string> names_of(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

inline std::vector<float> values_of(const Tensor& tensor) {
  const float* data = tensor.const_data_ptr<float>();
  return {data, data + tensor.numel()};
}

using Names = std::vector<std::string>;

}  // namespace lockstep::testing
