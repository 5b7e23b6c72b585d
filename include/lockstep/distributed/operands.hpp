// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// A variable on the same memory without a place in a graph: what an operation in flight holds, so
// that no graph hangs on the communication thread.
inline Tensor without_graph(const Tensor& tensor) {
  return tensor.grad_fn() ? lockstep::detail::make_view(tensor) : tensor;
}

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
  Operands(const std::vector<Tensor>& reads, std::size_t read_parts,
           const std::vector<Tensor>& writes, std::size_t write_parts)
      : read_parts_(read_parts), write_parts_(write_parts) {
    for (const Tensor& tensor : reads) {
      reads_.push_back(lockstep::detail::packed(without_graph(tensor)));
    }
    for (const Tensor& tensor : writes) {
      const Stream stream = current_stream(tensor.device());
      tensor.impl()->storage->order_write(stream);
      tensor.mark_changed();
      writes_.push_back(without_graph(tensor));
      note(stream);
    }
    for (const Tensor& tensor : reads_) note(current_stream(tensor.device()));
    for (const Stream& stream : streams_) {
      const Event event = stream.record_event();
      if (!event.query()) ready_.push_back(event);
    }
  }

  // The GPU that the tensors are on, if they are on one.
  std::optional<Device> gpu() const {
    for (const auto* tensors : {&reads_, &writes_}) {
      if (!tensors->empty() && tensors->front().device().is_cuda()) {
        return tensors->front().device();
      }
    }
    return std::nullopt;
  }

  void stage(Carrier& carrier) {
    if (const auto device = gpu()) stream_ = carrier.stream_for(*device);
    if (stream_) {
      stage_on(*stream_);
    } else {
      stage_on_host();
    }
    split(reads_, read_parts_, inputs_);
    split(memory_, write_parts_, outputs_);
  }

  // The carrier's stream for the GPU that the memory is on; none where it is on the host.
  const std::optional<Stream>& stream() const { return stream_; }
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }

  // Copies results to where they belong.
  void finish(WorkState& work) {
    const std::optional<Stream>& on = stream_ ? stream_ : copying_;
    std::optional<StreamGuard> guard;
    if (on) guard.emplace(*on);
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      if (!writes_[i].is_same(memory_[i])) lockstep::detail::copy_into(writes_[i], memory_[i]);
    }
    if (on && on->device().is_cuda()) {
      work.gpu = on->device();
      work.issued = on->record_event();
    }
  }

  // Lets go of all tensors. Memory of a GPU is kept until the stream has done with it; not for
  // those who write to it, whom `wait` has told: they would wait for what is in flight beside.
  void release() noexcept {
    if (stream_) {
      try {
        const Event end = stream_->record_event();
        for (const auto* tensors : {&reads_, &writes_}) {
          for (const Tensor& tensor : *tensors) tensor.impl()->storage->keep_until(*stream_, end);
        }
      } catch (const std::exception&) {
        for (const auto* tensors : {&reads_, &writes_}) {
          for (const Tensor& tensor : *tensors) leak(tensor);
        }
      }
    }
    reads_.clear();
    writes_.clear();
    memory_.clear();
  }

 private:
  // On the GPU, in the order of the stream: the host waits for nothing.
  void stage_on(const Stream& stream) {
    for (const Event& event : ready_) stream.wait_event(event);
    for (const Tensor& tensor : writes_) {
      memory_.push_back(tensor.is_contiguous()
                            ? tensor
                            : lockstep::detail::empty_on(stream, tensor.sizes(), tensor.dtype()));
    }
  }

  void stage_on_host() {
    for (const Event& event : ready_) event.synchronize();
    for (const Tensor& tensor : reads_) {
      if (tensor.device().is_cuda()) copies_on(tensor.device());
    }
    for (const Tensor& tensor : writes_) {
      if (!in_place(tensor)) copies_on(tensor.device());
    }
    std::optional<StreamGuard> guard;
    if (copying_) guard.emplace(*copying_);
    for (Tensor& tensor : reads_) {
      if (!tensor.device().is_cuda()) continue;
      const Tensor copy = empty(tensor.sizes(), {.dtype = tensor.dtype()});
      lockstep::detail::copy_into(copy, tensor);
      tensor = copy;
    }
    for (const Tensor& tensor : writes_) {
      memory_.push_back(in_place(tensor) ? tensor
                                         : empty(tensor.sizes(), {.dtype = tensor.dtype()}));
    }
  }

  // The device is broken, so nobody knows when its memory is free.
  static void leak(const Tensor& tensor) { (void)new (std::nothrow) Tensor(tensor); }

  static bool in_place(const Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.is_contiguous();
  }

  void note(const Stream& stream) {
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
      streams_.push_back(stream);
    }
  }
  // Copies are issued to a stream of their own: the current one is the caller's to wait with.
  void copies_on(Device device) {
    if (!copying_) copying_ = pool_stream(device);
  }

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
