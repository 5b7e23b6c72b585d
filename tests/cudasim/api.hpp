// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cudasim/fiber.hpp"
#include "cudasim/machine.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace cudasim {

// What all calls of the runtime have in common: the lock, the log, reasons to refuse (no driver, a
// handle that is none, an injected failure, a broken device), the policy's turn afterwards, the
// thread's last error.
//
//   return ApiCall("cudaStreamQuery").on(stream).run([&](Machine& machine) { … });
class ApiCall {
 public:
  explicit ApiCall(const char* function);

  // The stream that it is given, which must be one.
  ApiCall& on(cudaStream_t stream);
  ApiCall& with(cudaEvent_t event);
  ApiCall& touching(const void* target, const void* source, std::size_t bytes);
  ApiCall& launching(std::string kernel);
  // A broken device does not keep it from doing its work, it only gives the error.
  ApiCall& releasing();
  // It asks for something that no context is made for.
  ApiCall& without_context();
  // It is none that a program makes: `fail_call` does not count it.
  ApiCall& internal();
  // It waits, so that an error of what it waits for is its own.
  ApiCall& synchronizing();

  template <class Body>
  cudaError_t run(Body body) {
    if (inside_operation()) return cudaErrorNotPermitted;
    const SimulatorLock lock(simulator_mutex);
    Machine& machine = cudasim::machine();
    cudaError_t error = refusal(machine);
    const cudaError_t broken = error == cudaSuccess ? broken_device(machine) : cudaSuccess;
    if (error == cudaSuccess && (broken == cudaSuccess || releasing_)) {
      if (needs_context_) machine.devices[current_device_index()].context = true;
      error = body(machine);
      machine.pump();
      if (error == cudaSuccess && synchronizing_) error = broken_device(machine);
    }
    return finish(error != cudaSuccess ? error : broken);
  }

 private:
  const Unseen unseen_;

  bool inside_operation() const;
  cudaError_t refusal(Machine& machine);
  cudaError_t counted_failure(Machine& machine) const;
  cudaError_t broken_device(const Machine& machine) const;
  static cudaError_t finish(cudaError_t error);
  static std::size_t current_device_index() {
    return static_cast<std::size_t>(thread_state().device);
  }

  Call call_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool wants_stream_ = false;
  bool wants_event_ = false;
  bool releasing_ = false;
  bool synchronizing_ = false;
  bool needs_context_ = true;
  bool counts_ = true;
};

// Issues a kernel, or what a library launches: the stream's device must be the current one.
cudaError_t launch(Machine& machine, cudaStream_t stream, std::string name,
                   std::vector<MemoryUse> uses, std::function<void()> body);

}  // namespace cudasim

// Before the definition of a function of the runtime.
#define CUDASIM_API extern "C" cudaError_t CUDARTAPI
