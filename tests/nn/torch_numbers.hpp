// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/varied.hpp"

// What PyTorch computed, as tests/data/torch/record.py has recorded it.
namespace lockstep::testing {

// The folder of the recorded files.
inline std::filesystem::path torch_folder() {
  return std::filesystem::path(LOCKSTEP_TEST_DATA_DIR) / "torch";
}

// One case of one family of layers.
class TorchCase {
 public:
  TorchCase(const std::string& family, std::string name, Device device = Device("cpu:0"))
      : file_(torch_folder() / (family + ".safetensors")),
        name_(std::move(name)),
        device_(device) {}

  Tensor tensor(const std::string& kind, const std::string& key) const {
    return file_.get_tensor(name_ + "." + kind + "." + key, device_);
  }

  // All tensors of one kind, in the order of their names, which are what is left of them.
  StateDict tensors(const std::string& kind) const {
    const std::string prefix = name_ + "." + kind + ".";
    StateDict found;
    for (const std::string& key : file_.keys()) {
      if (!key.starts_with(prefix)) continue;
      found.push_back({key.substr(prefix.size()), file_.get_tensor(key, device_)});
    }
    std::sort(found.begin(), found.end(),
              [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    return found;
  }

 private:
  io::SafetensorsFile file_;
  std::string name_;
  Device device_;
};

inline void flatten_into(std::vector<Tensor>& list, const Tensor& tensor) {
  list.push_back(tensor);
}
template <class... T>
void flatten_into(std::vector<Tensor>& list, const std::tuple<T...>& tuple) {
  std::apply([&list](const auto&... parts) { (flatten_into(list, parts), ...); }, tuple);
}

// Succeeds if `module`, with the recorded parameters and buffers, gives the recorded outputs,
// gradients and buffers. `call(module, inputs)` gives the outputs, a Tensor or tuples of them.
template <class M, class Call>
::testing::AssertionResult agrees_with_torch(const TorchCase& torch, const M& module,
                                             const Call& call) {
  constexpr double kRtol = 1e-9;
  constexpr double kAtol = 1e-12;
  std::string differences;
  int compared = 0;
  const auto compare = [&](const std::string& what, const Tensor& ours, const Tensor& theirs) {
    ++compared;
    if (!ours.defined()) {
      differences += "\n  " + what + " is undefined";
    } else if (ours.dtype() == Dtype::i64) {
      if (ours.to_vector<std::int64_t>() != theirs.to_vector<std::int64_t>()) {
        differences += "\n  " + what + " is another number";
      }
    } else if (const auto close = all_close(ours, theirs, kRtol, kAtol); !close) {
      differences += "\n  " + what + ": " + close.message();
    }
  };

  load_state_dict(module, torch.tensors("state"));
  std::vector<Tensor> inputs;
  for (const auto& [key, tensor] : torch.tensors("input")) {
    inputs.push_back(is_floating_point(tensor.dtype()) ? Tensor(tensor).requires_grad_() : tensor);
  }
  std::vector<Tensor> outputs;
  flatten_into(outputs, call(module, inputs));

  std::vector<Tensor> output_grads;
  for (const auto& [key, tensor] : torch.tensors("output_grad")) output_grads.push_back(tensor);
  const StateDict expected = torch.tensors("output");
  if (outputs.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << outputs.size() << " outputs instead of " << expected.size();
  }
  for (const auto& [key, tensor] : expected) {
    compare("output " + key, outputs[std::stoul(key)], tensor);
  }
  if (!differences.empty()) return ::testing::AssertionFailure() << differences;

  autograd::backward(outputs, output_grads);
  for (const auto& [key, tensor] : torch.tensors("input_grad")) {
    compare("gradient of input " + key, inputs[std::stoul(key)].grad(), tensor);
  }
  const StateDict grads = torch.tensors("grad");
  const std::vector<NamedParameter> parameters = named_parameters(module);
  if (parameters.size() != grads.size()) differences += "\n  another number of parameters";
  for (const auto& [name, parameter] : parameters) {
    compare("gradient of " + name, parameter.grad(), torch.tensor("grad", name));
  }
  for (const auto& [name, buffer] : named_buffers(module)) {
    compare(name, buffer, torch.tensor("state_after", name));
  }
  if (compared < 2) return ::testing::AssertionFailure() << "nothing was compared";
  if (!differences.empty()) return ::testing::AssertionFailure() << differences;
  return ::testing::AssertionSuccess();
}

// The same for a module that takes the inputs one by one.
template <class M>
::testing::AssertionResult agrees_with_torch(const TorchCase& torch, const M& module) {
  return agrees_with_torch(torch, module, [](const M& callee, const std::vector<Tensor>& x) {
    if constexpr (ForwardableWith<const M, Tensor, Tensor>) {
      return x.size() == 1 ? callee.forward(x[0]) : callee.forward(x.at(0), x.at(1));
    } else {
      return callee.forward(x.at(0));
    }
  });
}

}  // namespace lockstep::testing
