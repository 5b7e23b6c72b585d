// SPDX-License-Identifier: Apache-2.0

// The half of the program that g++ or clang compiles, with no CUDA header in sight. It asks for
// devices before main, when the other half may not have registered yet, and again in main; without
// a driver it must start, say why there is no GPU, and compute on host devices.
#include <lockstep/autograd/engine/accumulate_grad.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/tensor/creation.hpp>

#include "functor.hpp"

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>

namespace ls = lockstep;

namespace {

const std::size_t devices_before_main = ls::devices().size();

// A functor that no .cu file of this program names.
struct UnknownKernel {
  ls::View<float> out;
  void operator()(std::size_t i) const { out[i] = 0; }
};

// Stands for a stream of a GPU; nothing is ever issued to it.
class NoStream final : public ls::detail::StreamState {
 public:
  NoStream() : StreamState(ls::Device("cuda:0")) {}
  bool idle() const override { return true; }
  ls::detail::EventPtr record() override { return nullptr; }
  void wait(const ls::detail::EventPtr&) override {}
  void synchronize() override {}
};

int failures = 0;

void expect(bool holds, const char* what) {
  std::cout << (holds ? "ok: " : "FAILED: ") << what << '\n';
  failures += holds ? 0 : 1;
}

}  // namespace

int main() {
  const int gpus = ls::device_count(ls::DeviceType::cuda);
  std::cout << gpus << " CUDA devices";
  if (gpus == 0) std::cout << " (" << ls::no_cuda_reason() << "), falling back to host devices";
  std::cout << '\n';

  expect(devices_before_main > 0, "a device list could be had before main");
  expect(gpus > 0 || ls::no_cuda_reason() != "built without CUDA",
         "the CUDA half has registered its device counter");
  expect(gpus > 0 || ls::devices() == ls::host_devices(),
         "without a GPU, devices() are the host's");
  using Add = ls::detail::AddInPlaceKernel<float>;
  expect(ls::detail::kernel_slot<Add>.load() != nullptr, "the library's slots are filled");
  expect(ls::detail::kernel_slot<cuda_joint::OwnKernel>.load() != nullptr,
         "and that of a functor that the .cu file names");
  expect(ls::detail::kernel_slot<UnknownKernel>.load() == nullptr, "any other slot is empty");

  const ls::Tensor total = ls::full({4}, 1.5, {.device = ls::host_devices()[0]});
  ls::detail::add_in_place(total, ls::full({4}, 2, {.device = total.device()}));
  expect(total.const_data_ptr<float>()[3] == 3.5F, "a tensor operation computes on a host device");

  NoStream stream;
  std::string message;
  try {
    ls::launch(ls::Stream(stream), 1, UnknownKernel{});
  } catch (const ls::DeviceError& error) {
    message = error.what();
  }
  expect(
      message.find("include lockstep/cuda.hpp in one file that nvcc compiles") != std::string::npos,
      "an empty slot is an error that says what to do");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
