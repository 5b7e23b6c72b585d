// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/gpu_scratch.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/thread/combine_kernel.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <optional>
#include <span>

// Combines the ranks' parts of a reduction in the order of the ranks, on one stream of a GPU, with
// the bits of reduce_ranks.
namespace lockstep::distributed::detail {

using lockstep::detail::GpuScratch;

// Memory of a rank, on its GPU.
struct GpuMemory {
  Device device;
  void* data;
};

// Copies bytes between two GPUs, on `stream`, which belongs to one of them.
void copy_between(const GpuMemory& to, const GpuMemory& from, std::size_t bytes,
                  const Stream& stream);

template <class T>
class GpuReduction {
 public:
  GpuReduction(const Stream& stream, std::size_t begin, std::size_t end)
      : stream_(stream),
        begin_(begin),
        count_(end - begin),
        sum_(stream.state(), count_ * sizeof(W)) {}

  void run(ReduceOp op, std::span<const GpuMemory> inputs, std::span<const GpuMemory> outputs) {
    View<const W> before = first(inputs[0]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const bool divides = op == ReduceOp::avg && rank + 1 == inputs.size();
      const float ranks = divides ? static_cast<float>(inputs.size()) : 0.0F;
      launch(stream_, count_,
             CombineKernel<T>{before, within_reach(inputs[rank]), sum(), op, ranks});
      before = {sum().data, count_};
    }
    const GpuMemory result{stream_.device(), rounded(before)};
    for (const GpuMemory& output : outputs) {
      copy_between(place_in(output), result, count_ * sizeof(T), stream_);
    }
  }

 private:
  using W = Wide<T>;

  View<W> sum() const { return {static_cast<W*>(sum_.data()), count_}; }

  GpuMemory place_in(const GpuMemory& whole) const {
    return {whole.device, static_cast<T*>(whole.data) + begin_};
  }

  // Rank 0's elements as the type in which they are combined.
  View<const W> first(const GpuMemory& input) {
    const View<const T> elements = within_reach(input);
    if constexpr (is_half<T>) {
      launch(stream_, count_, lockstep::detail::CastKernel<W, T>{elements, sum()});
      return {sum().data, count_};
    } else {
      if (slice_ && elements.data == slice_->data()) {  // the next rank's elements go there
        copy_between({stream_.device(), sum().data}, {stream_.device(), slice_->data()},
                     count_ * sizeof(T), stream_);
        return {sum().data, count_};
      }
      return elements;
    }
  }

  // The input's elements where kernels of the stream can read them.
  View<const T> within_reach(const GpuMemory& input) {
    const GpuMemory place = place_in(input);
    if (lockstep::detail::can_access(stream_.device(), input.device)) {
      return {static_cast<const T*>(place.data), count_};
    }
    copy_between({stream_.device(), slice()}, place, count_ * sizeof(T), stream_);
    return {static_cast<const T*>(slice()), count_};
  }

  void* rounded(const View<const W>& result) {
    if constexpr (is_half<T>) {
      launch(stream_, count_,
             lockstep::detail::CastKernel<T, W>{result, {static_cast<T*>(slice()), count_}});
      return slice();
    } else {
      return const_cast<W*>(result.data);
    }
  }

  void* slice() {
    if (!slice_) slice_.emplace(stream_.state(), count_ * sizeof(T));
    return slice_->data();
  }

  const Stream stream_;
  const std::size_t begin_;
  const std::size_t count_;
  const GpuScratch sum_;
  std::optional<GpuScratch> slice_;
};

// Writes the reduction of elements [begin, end) of all inputs, one per rank, to every output. An
// output may be an input, as long as nobody else reads or writes these elements meanwhile.
void reduce_on_gpu(const Stream& stream, Dtype dtype, ReduceOp op,
                   std::span<const GpuMemory> inputs, std::span<const GpuMemory> outputs,
                   std::size_t begin, std::size_t end);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread/impl/reduce_on_gpu.ipp>
#endif
