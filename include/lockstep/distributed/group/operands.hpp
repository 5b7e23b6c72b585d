// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// A tensor on the same memory that is in no graph. An operation in flight holds this, so that the
// communication thread keeps no graph alive.
Tensor without_graph(const Tensor& tensor);

// A copy in memory of its own, on the same device.
Tensor copy_of(const Tensor& tensor);

// The tensors of one operation, and the memory that a carrier reads and writes for them: the
// tensors' own where possible, otherwise copies. For tensors on a GPU these are in host memory,
// unless the carrier has a stream for that GPU.
//
// The thread that issues the operation makes the object; the thread that runs it calls `stage`
// before the carrier and `finish` after it. The operation comes after what is on the current
// streams when the object is made.
class Operands {
 public:
  // Each list has one tensor for each part, or a single one in which the parts follow one another.
  Operands(std::span<const Tensor> reads, std::size_t read_parts, std::span<const Tensor> writes,
           std::size_t write_parts);

  // The GPU that the tensors are on, if they are on one.
  std::optional<Device> gpu() const;

  void stage(Carrier& carrier);

  // The carrier's stream for the GPU that the memory is on; none where it is on the host.
  const std::optional<Stream>& stream() const { return stream_; }
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }

  // Copies results from the carrier's memory to the tensors, and notes in `work` what to wait for.
  void finish(WorkState& work);

  // Lets go of all tensors. A GPU's memory is not freed before the stream has done with it. Later
  // writes do not wait for that, since `Work::wait` has ordered them after the operation: they
  // would wait for the stream's other operations, too.
  void release() noexcept;

  // The same, but never frees the memory, since the carrier may still use it.
  void leak() noexcept;

 private:
  // Stages in the order of the stream: the host waits for nothing.
  void stage_on(const Stream& stream);

  void stage_on_host();

  // Adds an owner that never lets go, since nobody knows when the memory is out of use.
  static void leak(const Tensor& tensor) noexcept {
    alignas(Tensor) std::byte owner[sizeof(Tensor)];
    ::new (static_cast<void*>(owner)) Tensor(tensor);
  }
  void leak_all() noexcept;

  static bool in_place(const Tensor& tensor);

  void note(const Stream& stream);
  // Has copies issued to a stream of their own: the current one may be one that callers compute on.
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
#include <lockstep/distributed/group/impl/operands.ipp>
#endif
