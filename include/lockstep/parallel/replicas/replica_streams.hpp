// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <vector>

// Streams of replicas that share a GPU: the first runs on the device's current stream, each further
// one on a stream of its own, so that they compute at the same time. Replicas on one host device
// need none: its compute stream works in the threads that issue to it.
namespace lockstep::detail {

// The stream of a device that is listed for the n-th time again: always the same one, so that
// memory that one step frees there is reused by the next.
//
// Threads: any.
Stream repetition_stream(Device device, std::size_t n);

// The streams of the replicas on a list of devices.
class ReplicaStreams {
 public:
  explicit ReplicaStreams(const std::vector<Device>& devices);

  bool any_own() const { return !own_.empty(); }
  bool own(std::size_t i) const { return !own_.empty() && own_[i]; }

  // Returns `body()`, run on the stream that replica i has of its own: after all that the device's
  // current stream holds, which then waits for it, also if body throws. The replica's arguments,
  // parameters, buffers and result are recorded, so that their memory stays until the streams that
  // use it are done.
  template <class M, class Parts, class Body>
  auto run(std::size_t i, const M& module, const Parts& parts, const Body& body) const {
    const Stream own(*own_[i]);
    const Stream outer = current_stream(own.device());
    own.wait_stream(outer);
    record(parts, own);
    for (const Tensor& tensor : tensors_of(module)) record(tensor, own);
    try {
      const StreamGuard guard(own);
      auto output = body();
      record(output, outer);
      for (const Tensor& buffer : lockstep::buffers(module))
        record(buffer, outer);  // there may be new ones
      outer.wait_stream(own);
      return output;
    } catch (...) {
      outer.wait_stream(own);
      throw;
    }
  }

 private:
  template <class T>
  static void record(const T& value, const Stream& stream) {
    const auto record_leaf = [&stream]<class Leaf>(const Leaf& leaf, const nested::Path& /*path*/) {
      using Traits = tensor_traits<Leaf>;
      if constexpr (requires { Traits::record_stream(leaf, stream); }) {
        if (Traits::device(leaf) == stream.device()) Traits::record_stream(leaf, stream);
      }
    };
    nested::for_each_leaf(value, nested::Path("replica"), record_leaf);
  }

  std::vector<StreamState*> own_;  // null for the current stream; empty if all are
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/replicas/impl/replica_streams.ipp>
#endif
