// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// A tensor on the same memory without a graph. An operation holds this one, so that the
// communication thread keeps no graph alive.
inline Tensor without_graph(const Tensor& tensor) {
  return tensor.grad_fn() ? lockstep::detail::make_view(tensor) : tensor;
}

// The tensors that an operation reads, or those that it writes: one for each of `count` parts, or a
// single one that holds the parts one after another.
struct Parts {
  std::span<const Tensor> tensors;
  std::size_t count = 1;
};

// The tensors of one operation, and the memory that a carrier reads and writes for them: their own
// where possible, else copies, which are in host memory unless the carrier has a stream for the
// tensors' GPU.
//
// The issuing thread makes the object, and the operation runs after what is on the current streams
// then. The thread that runs the operation calls `stage` before the carrier and `finish` after it.
class Operands {
 public:
  Operands(const Parts& reads, const Parts& writes)
      : read_parts_(reads.count), write_parts_(writes.count) {
    std::vector<Stream> streams;
    const auto stream_of = [&](const Tensor& tensor) {
      const Stream stream = current_stream(tensor.device());
      if (lockstep::detail::find(streams, stream) == streams.end()) streams.push_back(stream);
      return stream;
    };
    for (const Tensor& tensor : reads.tensors) {
      reads_.push_back(lockstep::detail::packed(without_graph(tensor)));
      (void)stream_of(tensor);
    }
    for (const Tensor& tensor : writes.tensors) {
      lockstep::detail::order_write(tensor, stream_of(tensor));
      writes_.push_back(without_graph(tensor));
    }
    for (const Stream& stream : streams) {
      if (const Event event = stream.record_event(); event.state()) ready_.push_back(event);
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
    if (const auto device = gpu()) {
      if (const auto stream = carrier.stream_for(*device)) {
        for_storages([&](lockstep::detail::Storage& of) { of.expect_use(*stream); });
        stream_ = stream;
      }
    }
    if (stream_) {
      stage_on(*stream_, carrier.works_across_gpus());
    } else {
      stage_on_host();
    }
    list_parts(reads_, read_parts_, inputs_);
    list_parts(memory_, write_parts_, outputs_);
  }

  // The carrier's stream for the memory's GPU; null for host memory.
  const Stream* stream() const { return stream_ ? &*stream_ : nullptr; }
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }

  // Copies results from the carrier's memory to the tensors, and stores in `work` what to wait for.
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
    } else if (on) {
      on->synchronize();  // Work::wait waits for no host device's stream
    }
  }

  // Releases all tensors. A GPU's memory is not freed before the stream has finished with it. Later
  // writes do not wait for the stream, which may have other operations: `Work::wait` has ordered
  // them after this one.
  void release() noexcept {
    if (stream_) {
      // Without an event, the end of all the stream's work stands for it.
      std::optional<Event> end;
      (void)lockstep::detail::thrown_by([&] { end = stream_->record_event(); });
      for_storages([&](lockstep::detail::Storage& of) { of.keep_until(*stream_, end); });
    }
    reads_.clear();
    writes_.clear();
    memory_.clear();
  }

  // Adds owners that are never destroyed, so that the memory is never freed: the carrier may use it
  // for ever.
  void leak() const noexcept {
    for (const auto* tensors : {&reads_, &writes_, &memory_}) {
      for (const Tensor& tensor : *tensors) {
        alignas(Tensor) std::byte owner[sizeof(Tensor)];
        ::new (static_cast<void*>(owner)) Tensor(tensor);
      }
    }
  }

 private:
  template <class Body>
  void for_storages(const Body& body) const {
    for (const auto* tensors : {&reads_, &writes_}) {
      for (const Tensor& tensor : *tensors) body(*tensor.impl()->storage);
    }
  }

  // Stages in stream order: the host does not wait.
  void stage_on(const Stream& stream, bool copies_lent) {
    for (const Event& event : ready_) stream.wait_event(event);
    const auto is_copied = [&](const Tensor& tensor) {
      return copies_lent && tensor.impl()->storage->is_lent();
    };
    for (Tensor& tensor : reads_) {
      if (!is_copied(tensor)) continue;
      const StreamGuard guard(stream);
      tensor = lockstep::detail::copy_as(tensor, tensor.options());
    }
    for (const Tensor& tensor : writes_) {
      memory_.push_back(tensor.is_contiguous() && !is_copied(tensor)
                            ? tensor
                            : lockstep::detail::empty_on(stream, tensor.sizes(), tensor.dtype()));
    }
  }

  void stage_on_host() {
    for (const Event& event : ready_) event.synchronize();
    for (Tensor& tensor : reads_) {
      if (!tensor.device().is_cuda()) continue;
      const StreamGuard guard(copying(tensor.device()));
      tensor = lockstep::detail::contiguous_on_host(tensor);
    }
    for (const Tensor& tensor : writes_) {
      const bool in_place = tensor.device().is_cpu() && tensor.is_contiguous();
      if (!in_place) (void)copying(tensor.device());
      memory_.push_back(in_place ? tensor : empty(tensor.sizes(), {.dtype = tensor.dtype()}));
    }
  }

  // The stream for copies, other than the current one, on which callers may compute.
  const Stream& copying(Device device) {
    if (!copying_) copying_ = pool_stream(device);
    return *copying_;
  }

  template <class Pointer>
  static void list_parts(const std::vector<Tensor>& tensors, std::size_t parts,
                         std::vector<Pointer>& pointers) {
    for (const Tensor& tensor : tensors) {
      auto* const data = static_cast<std::byte*>(tensor.impl()->data());
      if (tensors.size() == parts) {
        pointers.push_back(data);
        continue;
      }
      const std::size_t bytes = lockstep::detail::bytes_of(tensor) / parts;
      for (std::size_t i = 0; i < parts; ++i) pointers.push_back(data + i * bytes);
    }
  }

  std::size_t read_parts_;
  std::size_t write_parts_;
  std::vector<Tensor> reads_;
  std::vector<Tensor> writes_;
  std::vector<Tensor> memory_;  // the carrier writes to these
  std::vector<Event> ready_;
  std::optional<Stream> copying_;  // for copies to or from host memory
  std::optional<Stream> stream_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace lockstep::distributed::detail
