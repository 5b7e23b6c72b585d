// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/copy.hpp>
#include <lockstep/cuda/launch/index_fault.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/loops.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/ops/kernels/index_kernels.hpp>
#include <lockstep/tensor/row_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

// An index outside the dimension gives zeros, and the host is told.
template <class T>
struct TakeElements {
  detail::TakeCall<T> call;
  View<IndexFault> fault;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const detail::Taking& taking = call.taking;
    const Division row = divided(i, taking.inner);
    // A division is spared where there is one slice.
    const Division slice = row.quotient < taking.taken ? Division{0, row.quotient}
                                                       : divided(row.quotient, taking.taken);
    const std::size_t place = taking.for_each ? i : slice.remainder;
    const std::int64_t index = call.indices[place];
    if (!in_range(fault, taking.of, index, place, taking.count)) {
      call.out[i] = T{};
      return;
    }
    const std::size_t from = slice.quotient * taking.count + static_cast<std::size_t>(index);
    call.out[i] = call.in[from * taking.inner + row.remainder];
  }
};
template <class T>
struct CudaCall<detail::TakeCall<T>> {
  using kernels = Kernels<TakeElements<T>>;
  static void run(detail::StreamState& stream, const detail::TakeCall<T>& call) {
    launch_kernel(stream, call.out.size, TakeElements<T>{call, IndexFaults::instance().of(stream)});
  }
};

// One thread adds up all that comes for the elements with one o and one i, so that the order is
// that of the indices. What an index outside names is left out: forward has told the host.
template <class T>
struct AddTakenColumns {
  detail::AddTakenCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t column) const {
    const detail::Taking& taking = call.taking;
    const Division at = divided(column, taking.inner);
    const std::size_t first = at.quotient * taking.taken * taking.inner + at.remainder;
    T* const to = call.out.data + at.quotient * taking.count * taking.inner + at.remainder;
    for (std::size_t k = 0; k < taking.taken; ++k) {
      const std::int64_t index = call.indices[first + k * taking.inner];
      if (index < 0 || static_cast<std::size_t>(index) >= taking.count) continue;
      to[static_cast<std::size_t>(index) * taking.inner] += call.grad[first + k * taking.inner];
    }
  }
};

template <class T>
struct CudaCall<detail::AddTakenCall<T>> {
  using kernels = Kernels<AddTakenColumns<T>>;
  static void run(detail::StreamState& stream, const detail::AddTakenCall<T>& call) {
    if (call.grad.size == 0) return;
    launch_kernel(stream, call.grad.size / call.taking.taken, AddTakenColumns<T>{call});
  }
};

// Adds up the gradients of one row of the weight in the order of the indices: each row looks
// through all of them, or through those of one part. `out` is [parts, rows, width].
template <class T>
struct SumRowsKernel {
  View<const T> grad;
  View<const std::int64_t> indices;
  View<T> out;
  std::size_t rows, width;
  std::size_t indices_of_part;
  std::int64_t padding;

  LOCKSTEP_HD void operator()(std::size_t place, const Lanes& lanes) const {
    const Division at = divided(place, rows);
    const auto row = static_cast<std::int64_t>(at.remainder);
    T* const to = out.data + place * width;
    for (std::size_t j = lanes.index; j < width; j += lanes.count) to[j] = T(0);
    if (row == padding) return;
    const std::size_t first = at.quotient * indices_of_part;
    const std::size_t end =
        first + indices_of_part < indices.size ? first + indices_of_part : indices.size;
    // The lanes look at several indices each, then all of them at those where one found the row.
    constexpr std::size_t kEach = 4;
    const std::size_t block = kEach * lanes.count;
    for (std::size_t start = first; start < end; start += block) {
      const std::size_t stop = start + block < end ? start + block : end;
      int found = 0;
      for (std::size_t i = start + lanes.index; i < stop; i += lanes.count) {
        found |= static_cast<int>(indices[i] == row);
      }
      if (lanes.max(found) == 0) continue;
      for (std::size_t i = start; i < stop; ++i) {
        if (indices[i] != row) continue;
        const T* const from = grad.data + i * width;
        in_eights(
            lanes.index, lanes.count, width,
            [&](std::size_t j) {
              return Summands{to[j], from[j]};
            },
            [&](std::size_t j, const Summands& both) { to[j] = both.sum + both.next; });
      }
    }
  }

 private:
  struct Summands {
    T sum;
    T next;
  };
};

// The sum of the parts, in their order.
template <class T>
struct SumRowsPartsKernel {
  View<const T> parts;
  View<T> out;
  std::size_t count;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    T sum = parts[i];
    for (std::size_t p = 1; p < count; ++p) sum += parts[p * out.size + i];
    out[i] = sum;
  }
};

template <class T>
struct CudaCall<detail::SumRowsCall<T>> {
  using kernels = Kernels<SumRowsKernel<T>, SumRowsPartsKernel<T>>;
  static void run(detail::StreamState& stream, const detail::SumRowsCall<T>& call) {
    if (call.out.size == 0) return;
    // If there are few rows, the indices are divided into parts of at least kShortest, so that
    // about kRows rows are launched.
    constexpr std::size_t kRows = 2048;
    constexpr std::size_t kShortest = 256;
    const std::size_t most = std::max<std::size_t>(1, call.indices.size / kShortest);
    const std::size_t about = std::clamp<std::size_t>(kRows / call.rows, 1, most);
    const std::size_t each = std::max<std::size_t>(1, (call.indices.size + about - 1) / about);
    const std::size_t parts = std::max<std::size_t>(1, (call.indices.size + each - 1) / each);
    const auto launch_rows = [&](const View<T>& to) {
      launch_kernel(
          stream, parts * call.rows,
          SumRowsKernel<T>{call.grad, call.indices, to, call.rows, call.width, each, call.padding});
    };
    if (parts == 1) return launch_rows(call.out);
    const ScratchOf<T> sums(stream, parts * call.out.size);
    launch_rows(sums.view());
    launch_kernel(stream, call.out.size, SumRowsPartsKernel<T>{sums.const_view(), call.out, parts});
  }
};

// An index outside the table is left out, and the host is told.
template <class T>
struct PutRowsElements {
  detail::PutRowsCall<T> call;
  View<IndexFault> fault;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const Division at = divided(i, call.width);
    const std::int64_t index = call.indices[at.quotient];
    if (!in_range(fault, detail::RowsOf::sparse_tensor, index, at.quotient, call.rows)) return;
    call.out[static_cast<std::size_t>(index) * call.width + at.remainder] = call.values[i];
  }
};

template <class T>
struct CudaCall<detail::PutRowsCall<T>> {
  using kernels = Kernels<PutRowsElements<T>>;
  static void run(detail::StreamState& stream, const detail::PutRowsCall<T>& call) {
    if (call.values.size == 0) return;
    launch_kernel(stream, call.values.size,
                  PutRowsElements<T>{call, IndexFaults::instance().of(stream)});
  }
};

using IndexCalls =
    Kernels<ForMoved<detail::TakeCall>,
            ForFloating<detail::AddTakenCall, detail::SumRowsCall, detail::PutRowsCall>>;

}  // namespace lockstep::cuda
