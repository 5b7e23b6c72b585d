// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail::nested {

// Throws a DeviceError for part number `part` of an argument, which is not on the device that will
// use it.
[[noreturn]] void refuse_part(std::size_t part, Device device, Device expected, const Path& path);

// Throws that error if the device cannot use the tensor where it is.
template <class Leaf>
void check_part_device(std::size_t part, const Leaf& leaf, Device expected, const Path& path) {
  if (!is_on(leaf, expected)) refuse_part(part, tensor_traits<Leaf>::device(leaf), expected, path);
}

// Throws an IndexError for a tensor that cannot be `divided` or `gathered` along dim, as `error`
// says.
[[noreturn]] void refuse_dim(const IndexError& error, const char* what, std::int64_t dim,
                             const Path& path);

template <class Leaf>
std::int64_t rows_along(const Leaf& leaf, std::int64_t dim, const Path& path) {
  try {
    return tensor_traits<Leaf>::size(leaf, dim);
  } catch (const IndexError& error) {
    refuse_dim(error, "divided", dim, path);
  }
}

// Decides how to divide one call's arguments. It looks at all tensors of all arguments before
// anything is copied, so that all are split alike or none is.
class ScatterPlan {
 public:
  // The devices and the split must outlive the plan.
  ScatterPlan(const std::vector<Device>& devices, std::int64_t dim, const Split& split);
  ScatterPlan(ScatterPlan&&) = default;  // not copyable: a visitor's copy would lose what it notes

  // Notes a tensor of an argument. One without dimensions goes to every device as it is.
  template <class Leaf>
  void operator()(const Leaf& leaf, const Path& path) {
    if (tensor_traits<Leaf>::dim(leaf) == 0) return;
    const std::int64_t rows = rows_along(leaf, dim_, path);
    if (!rows_) {
      rows_ = rows;
      rows_path_ = path.text();
    } else if (rows != *rows_) {
      refuse_rows(rows, path);
    }
  }

  // Notes an argument that is Scattered already.
  void add_parts(std::size_t parts, const Path& path);
  // Notes a tensor of such a part, which must be on the part's device. The first one with
  // dimensions gives the part's rows.
  template <class Leaf>
  void add_part_leaf(std::size_t part, const Leaf& leaf, const Path& path) {
    check_part_device(part, leaf, (*devices_)[part], path);
    part_rows_.resize(*parts_);
    if (part_rows_[part] || tensor_traits<Leaf>::dim(leaf) == 0) return;
    part_rows_[part] = rows_along(leaf, dim_, path);
  }

  // Ends the noting. Throws a ValueError if arguments disagree or the split does not fit their
  // rows. If no argument has rows, there is a part for each of the first `parts_without_rows`
  // devices.
  void decide(std::size_t parts_without_rows = SIZE_MAX);

  // The devices that have work: one per part.
  const std::vector<Device>& devices() const { return used_.empty() ? *devices_ : used_; }
  // The number of rows of each part; empty if no argument has rows.
  const std::vector<std::int64_t>& rows() const { return sizes_; }

  template <class Leaf>
  std::vector<Leaf> scatter(const Leaf& leaf) const {
    if (!tensor_traits<Leaf>::defined(leaf)) return std::vector<Leaf>(devices().size(), leaf);
    if (tensor_traits<Leaf>::dim(leaf) == 0) {
      return tensor_traits<Leaf>::broadcast(leaf, devices());
    }
    return tensor_traits<Leaf>::scatter(leaf, devices(), sizes_, dim_);
  }

 private:
  [[noreturn]] void refuse_rows(std::int64_t rows, const Path& path) const;

  const std::int64_t dim_;
  const Split& split_;
  const std::vector<Device>* devices_;
  std::vector<Device> used_;  // those that have work; empty: all
  std::optional<std::int64_t> rows_;
  std::string rows_path_;
  std::optional<std::size_t> parts_;
  std::string parts_path_;
  std::vector<std::optional<std::int64_t>> part_rows_;  // by part
  std::vector<std::int64_t> sizes_;
};

// The visitors of the walks over arguments. Non-template functions make them, so that the walk over
// a type is compiled once for all structures that contain it.
inline auto adding_to(ScatterPlan& plan, std::size_t part) {
  return
      [&plan, part](const auto& leaf, const Path& path) { plan.add_part_leaf(part, leaf, path); };
}
// The chunks of each leaf, a std::vector<Leaf>, in the order of the walk.
using Chunks = std::vector<std::shared_ptr<void>>;
inline auto scattering_to(Chunks& chunks, const ScatterPlan& plan) {
  return [&]<class Leaf>(const Leaf& leaf, const Path& /*path*/) {
    chunks.push_back(std::make_shared<std::vector<Leaf>>(plan.scatter(leaf)));
  };
}
inline auto assigning_from(const Chunks& chunks, std::size_t part) {
  return [part, next = chunks.begin()]<class Leaf>(Leaf& leaf, const Path& /*path*/) mutable {
    leaf = std::move((*static_cast<std::vector<Leaf>*>((next++)->get()))[part]);
  };
}

// Notes all tensors of an argument, or the parts of a Scattered.
template <class T>
void plan_argument(ScatterPlan& plan, const T& argument, const Path& path) {
  for_each_leaf(argument, path, plan);
}
template <class T>
void plan_argument(ScatterPlan& plan, const Scattered<T>& argument, const Path& path) {
  plan.add_parts(argument.size(), path);
  for (std::size_t i = 0; i < argument.size(); ++i) {
    const auto add = adding_to(plan, i);
    for_each_leaf(argument[i], path, add);
  }
}

template <class T>
void plan_argument(ScatterPlan& plan, const Kwargs<T>& argument, const Path&) {
  plan_argument(plan, argument.values, Path("kwargs"));
}

// One T per device. (std::vector<bool> has no references to its elements.)
template <class T>
using Parts = std::conditional_t<std::is_same_v<T, bool>, std::deque<bool>, std::vector<T>>;

// Divides an argument into parts for the devices: copies of the structure, each with its own
// chunks.
template <class T>
Parts<T> scatter_argument(const ScatterPlan& plan, const T& argument) {
  if constexpr (TensorLike<T>) {
    return plan.scatter(argument);
  } else {
    Parts<T> parts(plan.devices().size(), argument);
    // The walk meets the tensors of a copy in the same order as the original's.
    Chunks chunks;
    const auto scatter = scattering_to(chunks, plan);
    const Path root("");
    for_each_leaf(argument, root, scatter);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto assign = assigning_from(chunks, i);
      for_each_leaf(parts[i], root, assign);
    }
    return parts;
  }
}
template <class T>
const std::vector<T>& scatter_argument(const ScatterPlan&, const Scattered<T>& argument) {
  return argument.parts();
}

template <class T>
Parts<T> scatter_argument(const ScatterPlan& plan, const Kwargs<T>& argument) {
  return scatter_argument(plan, argument.values);
}

// How a call's arguments are divided, and the arguments for each device that has work.
template <class... Args>
struct Calls : ScatterPlan {
  using ScatterPlan::ScatterPlan;

  std::vector<std::tuple<PartOf<Args>...>> arguments;
};

template <class... Args>
concept ScatterableArguments = (Scatterable<PartOf<Args>> && ...);

template <class... Args>
consteval void require_scatterable_arguments() {
  (require_scatterable<PartOf<Args>>(), ...);
}

// Divides all arguments of a call by one plan. Without arguments there is one part, on the first
// device.
template <class... Args>
Calls<Args...> scatter(const std::vector<Device>& devices, std::int64_t dim, const Split& split,
                       const Args&... args) {
  require_scatterable_arguments<Args...>();
  Calls<Args...> calls(devices, dim, split);
  if constexpr (ScatterableArguments<Args...>) {
    [[maybe_unused]] std::size_t index = 0;
    const Path root("args");
    (plan_argument(calls, args, Path(root, index++)), ...);
    calls.decide(sizeof...(Args) == 0 ? 1 : SIZE_MAX);
    const std::size_t count = calls.devices().size();
    calls.arguments.reserve(count);
    [&](auto&&... parts) {
      for (std::size_t i = 0; i < count; ++i) {
        calls.arguments.emplace_back(std::move(parts[i])...);
      }
    }(scatter_argument(calls, args)...);
  }
  return calls;
}

}  // namespace lockstep::detail::nested

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/nested/impl/scatter_plan.ipp>
#endif
