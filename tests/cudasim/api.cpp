// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace cudasim {

ApiCall::ApiCall(const char* function)
    : call_{function, "", thread_state().device, -1, -1, nullptr, nullptr, 0} {}

ApiCall& ApiCall::on(cudaStream_t stream) {
  stream_ = stream;
  wants_stream_ = true;
  return *this;
}

ApiCall& ApiCall::with(cudaEvent_t event) {
  event_ = event;
  wants_event_ = true;
  return *this;
}

ApiCall& ApiCall::touching(const void* target, const void* source, std::size_t bytes) {
  call_.target = target;
  call_.source = source;
  call_.bytes = bytes;
  return *this;
}

ApiCall& ApiCall::launching(std::string kernel) {
  call_.name = std::move(kernel);
  return *this;
}

ApiCall& ApiCall::releasing() {
  releasing_ = true;
  return *this;
}

ApiCall& ApiCall::without_context() {
  needs_context_ = false;
  return *this;
}

ApiCall& ApiCall::internal() {
  counts_ = false;
  return *this;
}

ApiCall& ApiCall::synchronizing() {
  synchronizing_ = true;
  return *this;
}

bool ApiCall::inside_operation() const {
  if (running_operation == nullptr) return false;
  report("CALL INSIDE A STREAM: " + call_.function + " by " + describe(*running_operation));
  return true;
}

cudaError_t ApiCall::counted_failure(Machine& machine) const {
  ThreadState& state = thread_state();
  constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();
  if (!counts_) return cudaSuccess;
  if (machine.fails != nullptr && machine.fails()) return machine.failure;
  if (state.calls_left == kNone) return cudaSuccess;
  if (state.calls_left > 0) {
    --state.calls_left;
    return cudaSuccess;
  }
  state.failed = call_.function;
  state.calls_left = kNone;
  if (state.breaks >= 0) machine.break_device(state.breaks, state.failure);
  return state.failure;
}

cudaError_t ApiCall::refusal(Machine& machine) {
  const bool known_stream = wants_stream_ && machine.known(stream_);
  const bool known_event = wants_event_ && machine.known(event_);
  if (known_stream) call_.stream = stream_->number;
  if (known_event) call_.event = event_->number;
  if (machine.recording) machine.calls.push_back(call_);

  if (!machine.config.driver) return cudaErrorInsufficientDriver;
  if (machine.devices.empty()) return cudaErrorNoDevice;
  if (const auto failure = machine.failures.find(call_.function);
      failure != machine.failures.end()) {
    const cudaError_t error = failure->second.error;
    if (--failure->second.times <= 0) machine.failures.erase(failure);
    return error;
  }
  if (const cudaError_t error = counted_failure(machine); error != cudaSuccess) return error;
  if (wants_stream_ && !known_stream) {
    const bool null =
        stream_ == nullptr || stream_ == cudaStreamLegacy || stream_ == cudaStreamPerThread;
    report((null ? "NULL STREAM: " : "NOT A STREAM: ") + call_.function + in_scope());
    return cudaErrorInvalidResourceHandle;
  }
  if (known_stream && stream_->destroyed) {
    report("DEAD STREAM: " + call_.function + " on " + describe(*stream_) + ", destroyed before" +
           in_scope());
    return cudaErrorInvalidResourceHandle;
  }
  if (wants_event_ && (!known_event || event_->destroyed)) {
    report((known_event ? "DEAD EVENT: " : "NOT AN EVENT: ") + call_.function + in_scope());
    return cudaErrorInvalidResourceHandle;
  }
  return cudaSuccess;
}

cudaError_t ApiCall::broken_device(const Machine& machine) const {
  const int device = stream_ != nullptr  ? stream_->device
                     : event_ != nullptr ? event_->device
                                         : thread_state().device;
  return machine.devices.empty() ? cudaSuccess
                                 : machine.devices[static_cast<std::size_t>(device)].broken;
}

cudaError_t ApiCall::finish(cudaError_t error) {
  if (error != cudaSuccess) thread_state().error = error;
  return error;
}

cudaError_t launch(Machine& machine, cudaStream_t stream, std::string name,
                   std::vector<MemoryUse> uses, std::function<void()> body) {
  const int current = thread_state().device;
  if (stream->device != current) {
    report("WRONG DEVICE: " + name + " launched on " + describe(*stream) + " while device " +
           std::to_string(current) + " is current" + in_scope());
    return cudaErrorInvalidResourceHandle;
  }
  machine.issue(stream, std::move(name), std::move(uses), std::move(body));
  return cudaSuccess;
}

}  // namespace cudasim
