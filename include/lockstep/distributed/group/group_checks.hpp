// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/operands.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/memory_range.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Checks of a collective's arguments that a rank can make alone.
namespace lockstep::distributed::detail {

// Throws for an undefined or a sparse tensor.
inline void check_dense(const char* operation, const Tensor& tensor) {
  lockstep::detail::check_defined(operation, "the tensor", tensor);
  check<ValueError>(!tensor.is_sparse(), operation,
                    ": expected a dense tensor, got a sparse one of shape ", tensor.sizes());
}

// Throws unless the tensor is dense and each of its elements has memory of its own.
inline void check_written(const char* operation, const Tensor& tensor) {
  check_dense(operation, tensor);
  check<ValueError>(!lockstep::detail::repeats_elements(tensor), operation,
                    ": more than one element of the tensor of shape ", tensor.sizes(),
                    " is the same element in memory: make it contiguous first");
}

inline void check_reducible(const char* operation, const Tensor& tensor, ReduceOp op) {
  check<DtypeError>(op != ReduceOp::avg || is_floating_point(tensor.dtype()), operation,
                    ": the average of a tensor of ", tensor.dtype(),
                    " is not defined: expected a floating-point tensor, or another operation");
}

inline void check_rank(const char* operation, int rank, int size) {
  check<ValueError>(rank >= 0 && rank < size, operation, ": rank ", rank,
                    " is out of range: the group has ", size, " ranks");
}

// Throws unless `list` has one tensor for each rank, each of the shape, dtype and device of `part`.
inline void check_list(const char* operation, const char* what, const std::vector<Tensor>& list,
                       const Tensor& part, int size) {
  check<ValueError>(list.size() == static_cast<std::size_t>(size), operation, ": expected ", size,
                    " tensors as ", what, ", one for each rank, got ", list.size());
  check_dense(operation, part);
  for (std::size_t i = 0; i < list.size(); ++i) {
    check<ValueError>(list[i].defined(), operation, ": ", what, '[', i,
                      "] is undefined: made without a value, or moved from");
    check<ShapeError>(list[i].sizes() == part.sizes(), operation, ": ", what, '[', i,
                      "] is of shape ", list[i].sizes(), ", but expected ", part.sizes());
    check<DtypeError>(list[i].dtype() == part.dtype(), operation, ": ", what, '[', i, "] is of ",
                      list[i].dtype(), ", but expected ", part.dtype());
    check<DeviceError>(list[i].device() == part.device(), operation, ": ", what, '[', i, "] is on ",
                       list[i].device(), ", but expected ", part.device());
  }
}

// The same for the root's list; another rank's list must be empty.
inline void check_root_list(const char* operation, const char* what,
                            const std::vector<Tensor>& list, const Tensor& part, int root, int rank,
                            int size) {
  check_rank(operation, root, size);
  if (rank == root) return check_list(operation, what, list, part, size);
  check<ValueError>(list.empty(), operation, ": rank ", rank, " is not the root, ", root,
                    ", and has no ", what, ", but ", list.size(), " were given");
}

// Throws unless `whole` has as many elements as `size` parts, and the dtype and device of `part`.
inline void check_whole(const char* operation, const char* what, const Tensor& whole,
                        const char* part_name, const Tensor& part, int size) {
  lockstep::detail::check_defined(operation, what, whole);
  lockstep::detail::check_defined(operation, part_name, part);
  check<ShapeError>(whole.numel() == part.numel() * size, operation, ": the ", what, " of shape ",
                    whole.sizes(), " has ", whole.numel(), " elements, but ", size, " ranks with ",
                    part_name, "s of shape ", part.sizes(), " make ", part.numel() * size);
  check<DtypeError>(whole.dtype() == part.dtype(), operation, ": the ", what, " is of ",
                    whole.dtype(), ", the ", part_name, " of ", part.dtype());
  check<DeviceError>(whole.device() == part.device(), operation, ": the ", what, " is on ",
                     whole.device(), ", the ", part_name, " on ", part.device());
}

// Throws if outputs of one call share memory, as far as MemoryRange can tell.
inline void check_outputs_apart(const char* operation, std::span<const Tensor> outputs) {
  std::uintptr_t end = 0;  // of all before
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const lockstep::detail::MemoryRange mine(outputs[i]);
    // Usually they lie in the order of the ranks. Nothing is allocated here: the other ranks would
    // have to be told of a failure.
    for (std::size_t j = 0; mine.begin < end && j < i; ++j) {
      check<ValueError>(!mine.meets(lockstep::detail::MemoryRange(outputs[j])), operation,
                        ": outputs[", j, "] and outputs[", i,
                        "] share memory: each needs memory of its own, as clone() gives it");
    }
    end = std::max(end, mine.end);
  }
}

// Throws if what a call reads shares memory with what it writes, except exactly in place: the
// single tensor of one side may be part `rank` of the other. Strided tensors may share memory,
// since they are copied before or after the call.
inline void check_in_place(const char* operation, const Parts& reads, const Parts& writes,
                           int rank) {
  if (reads.tensors.empty() || writes.tensors.empty()) return;
  const bool reads_one = reads.count == 1;
  const Parts& parts = reads_one ? writes : reads;
  const Tensor& one = (reads_one ? reads : writes).tensors.front();
  if (!one.is_contiguous()) return;
  const lockstep::detail::MemoryRange mine(one);
  const char* const name = reads_one ? "input" : "output";
  const char* const others = reads_one ? "output" : "input";
  const auto own = static_cast<std::size_t>(rank);
  const bool listed = parts.tensors.size() == parts.count;
  for (std::size_t i = 0; i < parts.tensors.size(); ++i) {
    const lockstep::detail::MemoryRange other(parts.tensors[i]);
    if (!parts.tensors[i].is_contiguous() || !mine.meets(other)) continue;
    if (!listed) {
      check<ValueError>(mine.begin == other.begin + own * (mine.end - mine.begin), operation,
                        ": the ", name, " shares memory with the ", others, ": it may be part ",
                        own, " of the ", others,
                        ", this rank's, exactly, or needs memory of its own, as clone() gives it");
    } else {
      const bool is_own = i == own || parts.count == 1;
      check<ValueError>(is_own && mine.begin == other.begin, operation, ": the ", name,
                        " shares memory with ", others, "s[", i, "]: it may be ", others, "s[", own,
                        "], this rank's, exactly, or needs memory of its own, as clone() gives it");
    }
  }
}

inline void check_members(const char* operation, const std::vector<int>& members, int size) {
  check<ValueError>(!members.empty(), operation, ": expected at least one rank");
  for (const int member : members) {
    check_rank(operation, member, size);
    check<ValueError>(std::count(members.begin(), members.end(), member) == 1, operation, ": rank ",
                      member, " is listed more than once");
  }
}

}  // namespace lockstep::distributed::detail
