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

// Streams of replicas that share a GPU: the first runs on the device's current stream, each other
// one on a stream of its own, so that they compute at once. Replicas on one host device need none:
// its compute stream runs work in the threads that issue it.
namespace lockstep::detail {

// The stream for the n-th repetition of a device in a list. It is always the same one, so that
// memory freed there is reused in the next step.
//
// Threads: any.
Stream repetition_stream(Device device, std::size_t n);

class ReplicaStreams {
 public:
  explicit ReplicaStreams(const std::vector<Device>& devices);

  bool any_own() const { return !own_.empty(); }
  bool own(std::size_t i) const { return !own_.empty() && own_[i]; }

  // Returns `body()`, run on replica i's own stream: after the work on the device's current stream,
  // which then waits for it, even if body throws. Records the replica's arguments, parameters,
  // buffers and result, so that their memory lives until the streams that use it are done.
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
