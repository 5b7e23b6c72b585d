// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/operands.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE Tensor without_graph(const Tensor& tensor) {
  return tensor.grad_fn() ? lockstep::detail::make_view(tensor) : tensor;
}

LOCKSTEP_INLINE Tensor copy_of(const Tensor& tensor) {
  const Tensor copy = empty(tensor.sizes(), {.dtype = tensor.dtype(), .device = tensor.device()});
  lockstep::detail::copy_into(copy, tensor);
  return copy;
}

LOCKSTEP_INLINE Operands::Operands(std::span<const Tensor> reads, std::size_t read_parts,
                                   std::span<const Tensor> writes, std::size_t write_parts)
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

LOCKSTEP_INLINE std::optional<Device> Operands::gpu() const {
  for (const auto* tensors : {&reads_, &writes_}) {
    if (!tensors->empty() && tensors->front().device().is_cuda()) {
      return tensors->front().device();
    }
  }
  return std::nullopt;
}

LOCKSTEP_INLINE void Operands::stage(Carrier& carrier) {
  if (const auto device = gpu()) stream_ = carrier.stream_for(*device);
  if (stream_) {
    stage_on(*stream_);
  } else {
    stage_on_host();
  }
  split(reads_, read_parts_, inputs_);
  split(memory_, write_parts_, outputs_);
}

LOCKSTEP_INLINE void Operands::finish(WorkState& work) {
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

LOCKSTEP_INLINE void Operands::release() noexcept {
  if (stream_) {
    try {
      const Event end = stream_->record_event();
      for (const auto* tensors : {&reads_, &writes_}) {
        for (const Tensor& tensor : *tensors) tensor.impl()->storage->keep_until(*stream_, end);
      }
    } catch (const std::exception&) {
      leak_all();
    }
  }
  reads_.clear();
  writes_.clear();
  memory_.clear();
}

LOCKSTEP_INLINE void Operands::leak() noexcept {
  leak_all();
  reads_.clear();
  writes_.clear();
  memory_.clear();
}

LOCKSTEP_INLINE void Operands::leak_all() noexcept {
  for (const auto* tensors : {&reads_, &writes_, &memory_}) {
    for (const Tensor& tensor : *tensors) leak(tensor);
  }
}

LOCKSTEP_INLINE void Operands::stage_on(const Stream& stream) {
  for (const Event& event : ready_) stream.wait_event(event);
  for (const Tensor& tensor : writes_) {
    memory_.push_back(tensor.is_contiguous()
                          ? tensor
                          : lockstep::detail::empty_on(stream, tensor.sizes(), tensor.dtype()));
  }
}

LOCKSTEP_INLINE void Operands::stage_on_host() {
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
    memory_.push_back(in_place(tensor) ? tensor : empty(tensor.sizes(), {.dtype = tensor.dtype()}));
  }
}

LOCKSTEP_INLINE bool Operands::in_place(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous();
}

LOCKSTEP_INLINE void Operands::note(const Stream& stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

LOCKSTEP_INLINE void Operands::copies_on(Device device) {
  if (!copying_) copying_ = pool_stream(device);
}

}  // namespace lockstep::distributed::detail
