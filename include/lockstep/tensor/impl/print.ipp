// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/finite.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/print.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <type_traits>

namespace lockstep::detail {

// Writes the numbers of a host tensor in brackets, one row a line; of long dimensions only the
// first and last three.
class TensorPrinter {
 public:
  explicit TensorPrinter(const Tensor& host) : host_(host) {}

  std::string text() {
    if (host_.numel() == 0) return "[]";  // whatever the other dimensions' sizes
    // A first pass finds the format and width that suit all numbers shown.
    write(0, 0);
    if (is_floating_point(host_.dtype())) {
      scientific_ = scientific_ || largest_ / smallest_ > 1000;
      width_ = std::max({width_, print(least_).size(), print(greatest_).size()});
    }
    measuring_ = false;
    out_.clear();
    write(0, 0);
    return out_;
  }

 private:
  static constexpr std::int64_t kEdge = 3;
  static constexpr std::int64_t kMostElements = 1000;

  void write(std::size_t dim, std::int64_t offset) {
    const Shape& sizes = host_.sizes();
    if (dim == sizes.size()) return write_number(offset);
    out_ += '[';
    const std::int64_t size = sizes[dim];
    const bool last = dim + 1 == sizes.size();
    const std::string gap = last ? ", "
                                 : "," + std::string(sizes.size() - dim - 1, '\n') +
                                       std::string(kIndent + dim + 1, ' ');
    const bool shortened = host_.numel() > kMostElements && size > 2 * kEdge;
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) out_ += gap;
      if (shortened && i == kEdge) {
        out_ += (last ? " ..." : "...") + gap;
        i = size - kEdge;
      }
      write(dim + 1, offset + i * host_.strides()[dim]);
    }
    out_ += ']';
  }

  void write_number(std::int64_t offset) {
    const std::string text = dispatch_all(
        host_.dtype(), [&]<class T>(T) { return format(host_.const_data_ptr<T>()[offset]); });
    if (measuring_) {
      width_ = std::max(width_, text.size());
    } else {
      out_ += std::string(width_ - std::min(width_, text.size()), ' ') + text;
    }
  }

  template <class T>
  std::string format(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      return format_real(convert<double>(value));
    }
  }

  std::string format_real(double value) {
    if (!is_finite(value)) return is_nan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    const double size = std::abs(value);
    if (measuring_) {
      whole_ = whole_ && value == std::trunc(value);
      scientific_ = scientific_ || size > 1e8 || (size > 0 && size < 1e-4);
      if (size > 0) smallest_ = std::min(smallest_, size);
      largest_ = std::max(largest_, size);
      least_ = std::min(least_, value);
      greatest_ = std::max(greatest_, value);
      return {};
    }
    return print(value);
  }

  std::string print(double value) const {
    char buffer[64];
    const char* const pattern = scientific_ ? "%.4e" : whole_ ? "%.0f." : "%.4f";
    const int length = std::snprintf(buffer, sizeof buffer, pattern, value);
    return {buffer, static_cast<std::size_t>(length)};
  }

  static constexpr std::size_t kIndent = 7;  // of "tensor("

  const Tensor host_;
  std::string out_;
  bool measuring_ = true;
  std::size_t width_ = 0;
  bool whole_ = true;
  bool scientific_ = false;
  double least_ = 0;
  double greatest_ = 0;
  double smallest_ = HUGE_VAL;  // the smallest magnitude but 0
  double largest_ = 0;          // the largest magnitude
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  if (tensor.is_sparse()) {
    const auto& sparse = static_cast<const detail::SparseImpl&>(*tensor.impl());
    return out << "sparse(indices=" << sparse.indices << ", values=" << sparse.values
               << ", size=" << tensor.sizes() << ')';
  }
  // The few numbers shown of a host's tensor are read in place.
  const bool there = tensor.device().is_cpu();
  const std::string text =
      detail::TensorPrinter(there ? tensor : detail::contiguous_on_host(tensor)).text();
  out << "tensor(" << text;
  if (tensor.numel() == 0 && tensor.dim() != 1) out << ", size=" << tensor.sizes();
  const Dtype dtype = tensor.dtype();
  // The numbers themselves show these two dtypes.
  const bool is_seen = dtype == Dtype::i64 || dtype == Dtype::boolean;
  if (dtype != Dtype::f32 && !(is_seen && tensor.numel() > 0)) {
    out << ", dtype=" << dtype;
  }
  if (!tensor.device().is_host_memory()) out << ", device=" << tensor.device();
  if (tensor.impl()->requires_grad) out << ", requires_grad=true";
  return out << ')';
}

}  // namespace lockstep
