// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// A variable on the same memory without a place in a graph: what an operation in flight holds, so
// that no graph hangs on the communication thread.
Tensor without_graph(const Tensor& tensor);

// Memory of its own, on the same device.
Tensor copy_of(const Tensor& tensor);

// The tensors of one operation, and the memory that a carrier sees in their place: the tensors' own
// where it can be, otherwise copies. Of GPUs it is host memory, unless the carrier has a stream for
// them.
//
// Made by the thread that issues the operation; `stage` and `finish` are called by the one that
// runs it, before and after the carrier. What is on the current streams when it is made comes
// first.
class Operands {
 public:
  // Each list is as many tensors as the operation has parts, or a single contiguous one that all
  // parts follow one another in.
  Operands(std::span<const Tensor> reads, std::size_t read_parts, std::span<const Tensor> writes,
           std::size_t write_parts);

  // The GPU that the tensors are on, if they are on one.
  std::optional<Device> gpu() const;

  void stage(Carrier& carrier);

  // The carrier's stream for the GPU that the memory is on; none where it is on the host.
  const std::optional<Stream>& stream() const { return stream_; }
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }

  // Copies results to where they belong.
  void finish(WorkState& work);

  // Lets go of all tensors. Memory of a GPU is kept until the stream has done with it; not for
  // those who write to it, whom `wait` has told: they would wait for what is in flight beside.
  void release() noexcept;

  // The same where the carrier may still use the memory, which is never freed then.
  void forget() noexcept;

 private:
  // On the GPU, in the order of the stream: the host waits for nothing.
  void stage_on(const Stream& stream);

  void stage_on_host();

  // Adds an owner that never lets go. Nobody knows when the memory is free.
  static void leak(const Tensor& tensor) noexcept {
    alignas(Tensor) std::byte owner[sizeof(Tensor)];
    ::new (static_cast<void*>(owner)) Tensor(tensor);
  }
  void leak_all() noexcept;

  static bool in_place(const Tensor& tensor);

  void note(const Stream& stream);
  // Copies are issued to a stream of their own: the current one is the caller's to wait with.
  void copies_on(Device device);

  template <class Pointer>
  static void split(const std::vector<Tensor>& tensors, std::size_t parts,
                    std::vector<Pointer>& pointers) {
    for (const Tensor& tensor : tensors) {
      auto* const data = static_cast<std::byte*>(tensor.impl()->data());
      if (tensors.size() == parts) {
        pointers.push_back(data);
        continue;
      }
      const std::size_t bytes =
          static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype()) / parts;
      for (std::size_t i = 0; i < parts; ++i) pointers.push_back(data + i * bytes);
    }
  }

  std::size_t read_parts_;
  std::size_t write_parts_;
  std::vector<Tensor> reads_;
  std::vector<Tensor> writes_;
  std::vector<Tensor> memory_;  // where the carrier writes
  std::vector<Stream> streams_;
  std::vector<Event> ready_;
  std::optional<Stream> copying_;  // where there are copies to or from host memory
  std::optional<Stream> stream_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/operands.ipp>
#endif
