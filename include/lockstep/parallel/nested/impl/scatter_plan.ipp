// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail::nested {

LOCKSTEP_INLINE void refuse_part(std::size_t part, Device device, Device expected,
                                 const Path& path) {
  fail<DeviceError>(path, ": part ", part, " is on ", device, ", but is to be used on ", expected,
                    ": scatter or prefetch to the devices of the model, in their order");
}

LOCKSTEP_INLINE void refuse_dim(const IndexError& error, const char* what, std::int64_t dim,
                                const Path& path) {
  fail<IndexError>(path, " cannot be ", what, " along dim ", dim, ": ", error.what());
}

LOCKSTEP_INLINE ScatterPlan::ScatterPlan(const std::vector<Device>& devices, std::int64_t dim,
                                         const Split& split)
    : dim_(dim), split_(split), devices_(&devices) {
  check<ValueError>(!devices.empty(), "Expected at least one device to scatter to");
}

LOCKSTEP_INLINE void ScatterPlan::add_parts(std::size_t parts, const Path& path) {
  check<ValueError>(parts > 0 && parts <= devices_->size(), path, " is scattered over ", parts,
                    " devices, but there are ", devices_->size());
  check<ValueError>(!parts_ || *parts_ == parts,
                    "arguments are scattered differently: ", parts_path_, " has ",
                    parts_.value_or(0), " parts, but ", path, " has ", parts);
  parts_ = parts;
  parts_path_ = path.text();
}

LOCKSTEP_INLINE void ScatterPlan::decide(std::size_t parts_without_rows) {
  std::size_t count = std::min(devices_->size(), parts_without_rows);
  if (parts_) {
    count = *parts_;
    // If a part has no tensor to count rows by, the rule divides the other arguments.
    for (const auto& rows : part_rows_) {
      if (rows) sizes_.push_back(*rows);
    }
    if (sizes_.size() != count) sizes_.clear();
    if (sizes_.empty() && rows_) sizes_ = split_sizes(*rows_, count, split_);
    if (rows_) {
      check<ValueError>(sizes_.size() == count, rows_path_, " has ", *rows_, " rows along dim ",
                        dim_, ", which make ", sizes_.size(), " parts, but ", parts_path_, " has ",
                        count);
      // (Parts without elements may have more rows in all than an int64 holds.)
      std::int64_t total = 0;
      for (const std::int64_t rows : sizes_) total += std::min(rows, INT64_MAX - total);
      check<ValueError>(total == *rows_, "arguments disagree in length along dim ", dim_, ": ",
                        rows_path_, " has ", *rows_, " rows, but ", parts_path_, " has ", total,
                        " over its ", count, " parts");
    }
  } else if (rows_) {
    sizes_ = split_sizes(*rows_, devices_->size(), split_);
    count = sizes_.size();
  }
  if (count == devices_->size()) return;
  used_.assign(devices_->begin(), devices_->begin() + static_cast<std::ptrdiff_t>(count));
}

LOCKSTEP_INLINE void ScatterPlan::refuse_rows(std::int64_t rows, const Path& path) const {
  fail<ValueError>("arguments disagree in length along dim ", dim_, ": ", rows_path_, " has ",
                   *rows_, " rows, but ", path, " has ", rows);
}

}  // namespace lockstep::detail::nested
