// SPDX-License-Identifier: Apache-2.0
#include "cudasim/api.hpp"

#include <chrono>
#include <string>

using cudasim::ApiCall;
using cudasim::Machine;
using cudasim::OperationPtr;

CUDASIM_API cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return ApiCall("cudaStreamCreateWithFlags").run([&](Machine& machine) {
    if ((flags & cudaStreamNonBlocking) == 0) {
      cudasim::report("BLOCKING STREAM: made without cudaStreamNonBlocking on device " +
                      std::to_string(cudasim::current_device()));
    }
    *stream = machine.create_stream(cudasim::current_device());
    return cudaSuccess;
  });
}

// What has been issued still runs.
CUDASIM_API cudaStreamDestroy(cudaStream_t stream) {
  return ApiCall("cudaStreamDestroy").on(stream).releasing().run([&](Machine&) {
    stream->destroyed = true;
    return cudaSuccess;
  });
}

CUDASIM_API cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return ApiCall("cudaStreamGetDevice").on(stream).run([&](Machine&) {
    *device = stream->device;
    return cudaSuccess;
  });
}

CUDASIM_API cudaStreamQuery(cudaStream_t stream) {
  return ApiCall("cudaStreamQuery").on(stream).run([&](Machine& machine) {
    return machine.poll(stream->tail()) ? cudaSuccess : cudaErrorNotReady;
  });
}

CUDASIM_API cudaStreamSynchronize(cudaStream_t stream) {
  return ApiCall("cudaStreamSynchronize").on(stream).synchronizing().run([&](Machine& machine) {
    const bool ended = machine.host_wait(stream->tail(), "cudaStreamSynchronize");
    machine.give_back_memory(stream->device);
    return ended ? cudaSuccess : cudaErrorLaunchTimeout;
  });
}

CUDASIM_API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return ApiCall("cudaStreamWaitEvent").on(stream).with(event).run([&](Machine& machine) {
    if (!event->recorded) {
      cudasim::report("EVENT NEVER RECORDED: " + cudasim::describe(*stream) + " waits for nothing" +
                      cudasim::in_scope());
      return cudaSuccess;
    }
    const OperationPtr wait = machine.issue(stream, "cudaStreamWaitEvent", {}, {});
    wait->awaited.push_back(event->recorded);
    return cudaSuccess;
  });
}

CUDASIM_API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return ApiCall("cudaLaunchHostFunc").on(stream).run([&](Machine& machine) {
    const OperationPtr call =
        machine.issue(stream, "cudaLaunchHostFunc", {}, [function, data] { function(data); });
    call->host_function = true;
    return cudaSuccess;
  });
}

CUDASIM_API cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return ApiCall("cudaEventCreateWithFlags").run([&](Machine& machine) {
    *event = machine.create_event(cudasim::current_device());
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
  });
}

CUDASIM_API cudaEventDestroy(cudaEvent_t event) {
  return ApiCall("cudaEventDestroy").with(event).releasing().run([&](Machine& machine) {
    machine.destroy_event(event);
    return cudaSuccess;
  });
}

CUDASIM_API cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return ApiCall("cudaEventRecord").on(stream).with(event).run([&](Machine& machine) {
    if (event->device != stream->device) {
      cudasim::report("WRONG DEVICE: event " + std::to_string(event->number) + " of device " +
                      std::to_string(event->device) + " recorded on " + cudasim::describe(*stream) +
                      cudasim::in_scope());
      return cudaErrorInvalidResourceHandle;
    }
    event->recorded = machine.issue(stream, "cudaEventRecord", {}, {});
    return cudaSuccess;
  });
}

CUDASIM_API cudaEventQuery(cudaEvent_t event) {
  return ApiCall("cudaEventQuery").with(event).run([&](Machine& machine) {
    return machine.poll(event->recorded) ? cudaSuccess : cudaErrorNotReady;
  });
}

CUDASIM_API cudaEventSynchronize(cudaEvent_t event) {
  return ApiCall("cudaEventSynchronize").with(event).synchronizing().run([&](Machine& machine) {
    if (!event->recorded) {
      cudasim::report("EVENT NEVER RECORDED: cudaEventSynchronize of event " +
                      std::to_string(event->number) + cudasim::in_scope());
      return cudaSuccess;
    }
    const bool ended = machine.host_wait(event->recorded, "cudaEventSynchronize");
    machine.give_back_memory(event->device);
    return ended ? cudaSuccess : cudaErrorLaunchTimeout;
  });
}

// The time between the moments at which the simulator ran the two.
CUDASIM_API cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return ApiCall("cudaEventElapsedTime").with(end).run([&](Machine& machine) {
    if (!machine.known(start) || start->destroyed || start->device != end->device) {
      cudasim::report("NO TIME BETWEEN EVENTS of two devices, or of one that is gone" +
                      cudasim::in_scope());
      return cudaErrorInvalidResourceHandle;
    }
    for (const cudaEvent_t event : {start, end}) {
      if (!event->timing || !event->recorded) return cudaErrorInvalidResourceHandle;
      if (!event->recorded->done) return cudaErrorNotReady;
    }
    const std::chrono::duration<float, std::milli> elapsed =
        end->recorded->ended_at - start->recorded->ended_at;
    *ms = elapsed.count();
    return cudaSuccess;
  });
}
