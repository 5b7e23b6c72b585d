// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE Tensor GradBucket::gradient(std::size_t i) const {
  check<IndexError>(i < size(), "GradBucket.gradient: expected an index below ", size(), ", got ",
                    i);
  const Tensor& parameter = parameters_[i];
  const bool images = detail::is_channels_last(parameter);
  return detail::make_view(buffer_, parameter.sizes(),
                           images ? parameter.strides() : contiguous_strides(parameter.sizes()),
                           buffer_.impl()->offset + offsets_[i]);
}

LOCKSTEP_INLINE std::vector<Tensor> GradBucket::gradients() const {
  std::vector<Tensor> views;
  for (std::size_t i = 0; i < size(); ++i) views.push_back(gradient(i));
  return views;
}

LOCKSTEP_INLINE GradBucket GradBucket::with_buffer(Tensor buffer) const {
  check<ShapeError>(buffer.is_contiguous() && buffer.numel() == buffer_.numel(),
                    "GradBucket.with_buffer: expected a contiguous tensor of ", buffer_.numel(),
                    " elements, got one of shape ", buffer.sizes());
  return {index_, is_last_, std::move(buffer), parameters_, offsets_};
}

LOCKSTEP_INLINE BucketFuture BucketFuture::then(std::function<Tensor(const Tensor&)> step) && {
  steps_.push_back(std::move(step));
  return std::move(*this);
}

LOCKSTEP_INLINE Tensor BucketFuture::wait() {
  work_.wait();
  for (const auto& step : steps_) result_ = step(result_);
  steps_.clear();
  return result_;
}

}  // namespace lockstep
