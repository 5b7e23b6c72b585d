// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/leaves.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <algorithm>
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

namespace lockstep {

namespace detail::nested {

// How one call's arguments are divided: found by looking at all tensors of all arguments before
// anything is copied, so that every one of them is split alike or none is.
class ScatterPlan {
 public:
  ScatterPlan(const std::vector<Device>& devices, std::int64_t dim, Split split)
      : dim_(dim), split_(split), devices_(devices) {
    check<ValueError>(!devices.empty(), "Expected at least one device to scatter to");
  }

  // Takes a tensor into account; one without dimensions goes to every device as it is.
  template <class Leaf>
  void add(const Leaf& leaf, const Path& path) {
    if (tensor_traits<Leaf>::dim(leaf) == 0) return;
    require(tensor_traits<Leaf>::size(leaf, dim_), path);
  }

  // Takes an argument into account that is in parts already.
  void add_parts(std::size_t parts, const Path& path) {
    check<ValueError>(parts > 0 && parts <= devices_.size(), path.str(), " is scattered over ",
                      parts, " devices, but there are ", devices_.size());
    check<ValueError>(!parts_ || *parts_ == parts,
                      "arguments are scattered differently: ", parts_path_, " has ",
                      parts_.value_or(0), " parts, but ", path.str(), " has ", parts);
    parts_ = parts;
    parts_path_ = path.str();
  }
  // The first tensor of part i that has dimensions tells how many rows it has.
  template <class Leaf>
  void add_part_leaf(std::size_t part, const Leaf& leaf) {
    if (part != part_rows_.size() || tensor_traits<Leaf>::dim(leaf) == 0) return;
    part_rows_.push_back(tensor_traits<Leaf>::size(leaf, dim_));
  }

  // Call when everything has been added.
  void decide() {
    if (parts_) {
      count_ = *parts_;
      // Parts without a tensor in them leave the division of the others to the rule.
      sizes_ =
          part_rows_.empty() && rows_ ? split_sizes(*rows_, devices_.size(), split_) : part_rows_;
      if (rows_) {
        std::int64_t total = 0;
        for (const std::int64_t size : sizes_) total += size;
        check<ValueError>(sizes_.size() == count_ && total == *rows_,
                          "arguments disagree in length along dim ", dim_, ": ", rows_path_,
                          " has ", *rows_, " rows, but ", parts_path_, " has ", total, " over its ",
                          count_, " parts");
      }
    } else if (rows_) {
      sizes_ = split_sizes(*rows_, devices_.size(), split_);
      count_ = sizes_.size();
    } else {
      count_ = devices_.size();
    }
    devices_.resize(count_);
  }

  std::size_t count() const { return count_; }
  const std::vector<Device>& devices() const { return devices_; }

  template <class Leaf>
  std::vector<Leaf> scatter(const Leaf& leaf) const {
    if (!tensor_traits<Leaf>::defined(leaf)) return std::vector<Leaf>(count_, leaf);
    if (tensor_traits<Leaf>::dim(leaf) == 0) return tensor_traits<Leaf>::broadcast(leaf, devices_);
    return tensor_traits<Leaf>::scatter(leaf, devices_, sizes_, dim_);
  }

 private:
  void require(std::int64_t rows, const Path& path) {
    if (!rows_) {
      rows_ = rows;
      rows_path_ = path.str();
      return;
    }
    check<ValueError>(rows == *rows_, "arguments disagree in length along dim ", dim_, ": ",
                      rows_path_, " has ", *rows_, " rows, but ", path.str(), " has ", rows);
  }

  const std::int64_t dim_;
  const Split split_;
  std::vector<Device> devices_;
  std::optional<std::int64_t> rows_;
  std::string rows_path_;
  std::optional<std::size_t> parts_;
  std::string parts_path_;
  std::vector<std::int64_t> part_rows_;
  std::vector<std::int64_t> sizes_;
  std::size_t count_ = 0;
};

// Takes an argument into account: all tensors in it, or the parts that it is in already.
template <class T>
void plan_argument(ScatterPlan& plan, const T& argument, const Path& path) {
  const auto add = [&plan](const auto& leaf, const Path& where) { plan.add(leaf, where); };
  for_each_leaf(argument, path, add);
}
template <class T>
void plan_argument(ScatterPlan& plan, const Scattered<T>& argument, const Path& path) {
  plan.add_parts(argument.size(), path);
  for (std::size_t i = 0; i < argument.size(); ++i) {
    const auto add = [&plan, i](const auto& leaf, const Path&) { plan.add_part_leaf(i, leaf); };
    for_each_leaf(argument[i], path, add);
  }
}

template <class T>
void plan_argument(ScatterPlan& plan, const Kwargs<T>& argument, const Path&) {
  plan_argument(plan, argument.values, Path("kwargs"));
}

// One T for each device. (A std::vector<bool> holds no bool that could be referred to.)
template <class T>
using Parts = std::conditional_t<std::is_same_v<T, bool>, std::deque<bool>, std::vector<T>>;

// An argument as parts for the devices: copies of the structure, each with its own chunks.
template <class T>
Parts<T> scatter_argument(const ScatterPlan& plan, const T& argument) {
  if constexpr (TensorLike<T>) {
    return plan.scatter(argument);
  } else {
    Parts<T> parts(plan.count(), argument);
    // The walk meets the tensors of every copy in the same order as those of the original.
    std::vector<std::shared_ptr<void>> chunks;
    const auto scatter = [&](const auto& leaf, const Path&) {
      using Leaf = std::remove_cvref_t<decltype(leaf)>;
      chunks.push_back(std::make_shared<std::vector<Leaf>>(plan.scatter(leaf)));
    };
    const Path root("");
    for_each_leaf(argument, root, scatter);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::size_t next = 0;
      const auto assign = [&](auto& leaf, const Path&) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        leaf = std::move((*static_cast<std::vector<Leaf>*>(chunks[next++].get()))[i]);
      };
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

// Moves every tensor in `value` to `device`, differentiably; those that are there stay as they are.
template <class T>
void move_to(T& value, Device device) {
  const auto move = [device](auto& leaf, const Path&) {
    leaf = tensor_traits<std::remove_cvref_t<decltype(leaf)>>::broadcast(leaf, {device})[0];
  };
  for_each_leaf(value, Path("output"), move);
}

template <class T>
struct PartOf {
  using Type = T;
};
template <class T>
struct PartOf<Scattered<T>> {
  using Type = T;
};

template <class T>
struct PartOf<Kwargs<T>> {
  using Type = T;
};

// All arguments of a call, divided by one plan: one tuple of arguments for each device.
template <class... Args>
std::vector<std::tuple<typename PartOf<Args>::Type...>> scatter_arguments(
    const std::vector<Device>& devices, std::int64_t dim, Split split, const Args&... args) {
  ScatterPlan plan(devices, dim, split);
  std::size_t index = 0;
  const Path root("args");
  (plan_argument(plan, args, Path(root, index++)), ...);
  plan.decide();
  std::vector<std::tuple<typename PartOf<Args>::Type...>> calls;
  [&](auto&&... parts) {
    for (std::size_t i = 0; i < plan.count(); ++i) calls.emplace_back(parts[i]...);
  }(scatter_argument(plan, args)...);
  return calls;
}

}  // namespace detail::nested

// Splits every tensor in `inputs` along `dim` and returns one copy of the structure for each
// device, holding its chunks.
//
// `inputs` is a tensor or any nesting of std::tuple, pair, array, vector, map, unordered_map,
// optional, variant and plain structs; anything else in it, and a tensor without dimensions, goes
// to every device. The number of chunks is that of the tensors' rows: all must have as many along
// `dim`, and there are fewer parts than devices where the rows do not suffice.
//
// **Torch counterpart.** torch.nn.parallel.scatter, which drops rows where tensors disagree.
// **Devices and streams.** comm::scatter: from host memory on each device's copy stream. A chunk
// for the device that the tensor is on already is a view.
// **Backward.** Gathers the chunks' gradients onto the input's device.
// **Threads and exceptions.** ValueError without devices, or for tensors that disagree (both are
// named with their paths and lengths); IndexError for a dim out of range.
// **Example.** auto chunks = ls::scatter(batch, {"cpu:0", "cpu:1"});  // 15 rows: 8 and 7
template <class T>
Scattered<T> scatter(const T& inputs, const std::vector<Device>& devices, std::int64_t dim = 0,
                     Split split = Split::chunk) {
  detail::nested::ScatterPlan plan(devices, dim, split);
  detail::nested::plan_argument(plan, inputs, detail::nested::Path("inputs"));
  plan.decide();
  return Scattered<T>(detail::nested::scatter_argument(plan, inputs));
}

// Splits the positional and the keyword arguments of a call by one plan: as many parts of either,
// so that neither needs padding and a constant follows the tensors.
//
// **Torch counterpart.** torch.nn.parallel.scatter_kwargs, which divides the two separately.
// **Devices and streams.** **Backward.** As scatter.
// **Threads and exceptions.** As scatter; paths start with `args` and `kwargs`.
template <class... Args, class K>
std::pair<Scattered<std::tuple<typename detail::nested::PartOf<Args>::Type...>>, Scattered<K>>
scatter_kwargs(const std::tuple<Args...>& inputs, const K& keywords,
               const std::vector<Device>& devices, std::int64_t dim = 0,
               Split split = Split::chunk) {
  using Positional = std::tuple<typename detail::nested::PartOf<Args>::Type...>;
  auto calls = std::apply(
      [&](const auto&... args) {
        return detail::nested::scatter_arguments(devices, dim, split, args..., Kwargs<K>{keywords});
      },
      inputs);
  std::vector<Positional> positional;
  std::vector<K> named;
  for (auto& call : calls) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      positional.push_back(Positional(std::get<I>(call)...));
    }
    (std::index_sequence_for<Args...>{});
    named.push_back(std::move(std::get<sizeof...(Args)>(call)));
  }
  return {Scattered<Positional>(std::move(positional)), Scattered<K>(std::move(named))};
}

// Puts the parts together again: every tensor concatenated along `dim` on `device`, in the order of
// the parts, within a structure like theirs.
//
// All parts must have the same structure. What is no tensor is taken from part 0. Tensors without
// dimensions become a vector with one element a part, and a warning says so.
//
// **Torch counterpart.** torch.nn.parallel.gather, which looks at part 0 alone.
// **Devices and streams.** comm::gather. Any device, plain `cpu` included; a result there is
// complete when this returns.
// **Backward.** Scatters the gradient back to where the parts' tensors were.
// **Threads and exceptions.** ValueError for no outputs, or for structures that differ, naming the
// place and the replica; ShapeError, naming index and shapes.
template <class T>
T gather(const std::vector<T>& outputs, Device device, std::int64_t dim = 0) {
  check<ValueError>(!outputs.empty(), "gather: there are no outputs to gather");
  const detail::nested::Path root("output");
  if constexpr (TensorLike<T>) {
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      detail::nested::check_same_structure(outputs[0], outputs[i], root, i);
    }
    if (!tensor_traits<T>::defined(outputs[0])) return outputs[0];
    return tensor_traits<T>::gather(outputs, device, dim);
  } else {
    std::vector<std::vector<const void*>> leaves(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      detail::nested::check_same_structure(outputs[0], outputs[i], root, i);
      const auto collect = [&](const auto& leaf, const auto&) { leaves[i].push_back(&leaf); };
      detail::nested::for_each_leaf(outputs[i], root, collect);
    }
    T result = outputs[0];
    std::size_t next = 0;
    const auto concatenate = [&](auto& leaf, const auto&) {
      using Leaf = std::remove_cvref_t<decltype(leaf)>;
      std::vector<Leaf> parts;
      for (const auto& of_part : leaves) parts.push_back(*static_cast<const Leaf*>(of_part[next]));
      leaf = tensor_traits<Leaf>::gather(parts, device, dim);
      ++next;
    };
    detail::nested::for_each_leaf(result, root, concatenate);
    return result;
  }
}

template <class T>
T gather(const Scattered<T>& outputs, Device device, std::int64_t dim = 0) {
  return gather(outputs.parts(), device, dim);
}

}  // namespace lockstep
