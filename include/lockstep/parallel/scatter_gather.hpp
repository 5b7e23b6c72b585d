// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/same_structure.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// Splits every tensor in `inputs` along `dim` and returns one copy of the structure per device,
// holding that device's chunks.
//
// `inputs` is a tensor or any nesting of std::tuple, pair, array, vector, map, unordered_map,
// optional, variant and plain structs. Anything else in it, and a tensor without dimensions, goes
// to every device; a type that may hide tensors does not compile, and the message says why. All
// tensors must have the same number of rows along `dim`. `split` says how many each device gets.
// Fewer rows than devices make fewer parts; 0 rows make a part for every device.
//
// **Torch counterpart.** torch.nn.parallel.scatter, which drops rows where tensors disagree.
// **Devices and streams.** As comm::scatter. A chunk for the tensor's own device is a view.
// **Backward.** Gathers the chunks' gradients onto the input's device; sums those of a tensor
// without dimensions.
// **Threads and exceptions.** Any thread. ValueError for no devices, for tensors that disagree (it
// names both with their paths and lengths), or for a split that does not fit; IndexError for a dim
// out of range; DeviceError for a device that should get a chunk and does not exist.
// **Example.** auto chunks = ls::scatter(batch, {"cpu:0", "cpu:1"});  // 15 rows: 8 and 7
template <class T>
Scattered<T> scatter(const T& inputs, const std::vector<Device>& devices, std::int64_t dim = 0,
                     const Split& split = Split::chunk) {
  detail::require_scatterable<T>();
  if constexpr (Scatterable<T>) {
    detail::nested::ScatterPlan plan(devices, dim, split);
    detail::nested::plan_argument(plan, inputs, detail::nested::Path("inputs"));
    plan.decide();
    return Scattered<T>(detail::nested::scatter_argument(plan, inputs));
  } else {
    return {};
  }
}

// Splits a call's positional and keyword arguments together, so both have the same number of parts.
//
// **Torch counterpart.** torch.nn.parallel.scatter_gather.scatter_kwargs, which splits the two
// separately and pads the shorter.
// **Devices and streams.** **Backward.** As scatter.
// **Threads and exceptions.** As scatter; paths start with `args` and `kwargs`.
template <class... Args, class K>
auto scatter_kwargs(const std::tuple<Args...>& inputs, const K& keywords,
                    const std::vector<Device>& devices, std::int64_t dim = 0,
                    const Split& split = Split::chunk) {
  using Positional = std::tuple<detail::nested::PartOf<std::remove_cvref_t<Args>>...>;
  std::pair<Scattered<Positional>, Scattered<K>> parts;
  detail::require_scatterable<K>();
  if constexpr (Scatterable<K>) {
    auto calls = std::apply(
        [&](const auto&... args) {
          return detail::nested::scatter(devices, dim, split, args..., Kwargs<K>{keywords});
        },
        inputs);
    for (auto& call : calls.arguments) {
      [&]<std::size_t... i>(std::index_sequence<i...>) {
        parts.first.push_back(Positional(std::move(std::get<i>(call))...));
      }
      (std::index_sequence_for<Args...>{});
      parts.second.push_back(std::move(std::get<sizeof...(Args)>(call)));
    }
  }
  return parts;
}

// The type that gather makes of parts of type T: T itself, but for plain values (numbers, strings)
// a list with one per part.
template <class T>
using Gathered = std::conditional_t<detail::nested::PlainValue<T>, std::vector<T>, T>;

namespace detail::nested {

// Each part's share of all rows; equal shares if there are no rows.
inline std::vector<double> row_weights(std::span<const std::int64_t> rows, std::size_t parts) {
  double total = 0;
  for (const std::int64_t n : rows) total += static_cast<double>(n);
  if (total == 0) return std::vector<double>(parts, 1 / static_cast<double>(parts));
  std::vector<double> weights;
  for (const std::int64_t n : rows) weights.push_back(static_cast<double>(n) / total);
  return weights;
}

// The sum of scalars, each times its weight. Scalars of weight 0 are left out, since the mean of no
// rows is not a number.
template <class Leaf>
Leaf weighted_sum(std::vector<Leaf> scalars, std::vector<double> weights, Device device) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (weights[i] == 0) continue;
    scalars[kept] = scalars[i];
    weights[kept++] = weights[i];
  }
  scalars.resize(kept);
  weights.resize(kept);
  return tensor_traits<Leaf>::weighted_sum(scalars, weights, device);
}

// How to gather leaves that are scalars in every part. rows[i] is part i's number of rows; if
// empty, all parts count the same.
struct ScalarRule {
  Reduction reduction = Reduction::none;
  std::span<const std::int64_t> rows = {};

  std::vector<double> weights(std::size_t parts) const {
    return reduction == Reduction::sum ? std::vector<double>(parts, 1) : row_weights(rows, parts);
  }
};

template <class Leaf>
Leaf gather_leaf(const std::vector<Leaf>& parts, Device device, std::int64_t dim,
                 const ScalarRule& rule, const Path& path) {
  if (rule.reduction != Reduction::none) {
    const auto is_scalar = [](const Leaf& leaf) { return tensor_traits<Leaf>::dim(leaf) == 0; };
    if (all_of(parts, is_scalar)) {
      if constexpr (SummableTensor<Leaf>) {
        return weighted_sum(parts, rule.weights(parts.size()), device);
      } else {
        fail<ValueError>(
            "gather: scalars of this tensor type cannot be added up: its "
            "tensor_traits have no weighted_sum");
      }
    }
  }
  try {
    return tensor_traits<Leaf>::gather(parts, device, dim);
  } catch (const IndexError& error) {
    refuse_dim(error, "gathered", dim, path);
  }
}

// The addresses of the leaves of one part, in the order of the walk.
using Leaves = std::vector<const void*>;
inline auto collecting_to(Leaves& leaves) {
  return [&leaves](const auto& leaf, const Path& /*path*/) { leaves.push_back(&leaf); };
}
inline auto gathering_from(const std::vector<Leaves>& parts, Device device, std::int64_t dim,
                           const ScalarRule& rule) {
  return [&parts, device, dim, &rule, next = std::size_t{0}]<class Leaf>(Leaf& leaf,
                                                                         const Path& path) mutable {
    std::vector<Leaf> row;
    for (const Leaves& part : parts) row.push_back(*static_cast<const Leaf*>(part[next]));
    leaf = gather_leaf(row, device, dim, rule, path);
    ++next;
  };
}

template <class T>
Gathered<T> gather(const std::vector<T>& parts, Device device, std::int64_t dim,
                   const ScalarRule& rule) {
  // A class with private members is refused below, by a message that speaks of results.
  if constexpr (decltype(find_obstacle<T>())::obstacle != Obstacle::hidden) {
    require_scatterable<T>();
  }
  check<ValueError>(!parts.empty(), "gather: there are no outputs to gather");
  if constexpr (PlainValue<T>) {
    return parts;
  } else {
    const Path root("output");
    for (std::size_t i = 1; i < parts.size(); ++i) {
      check_same_structure(parts[0], parts[i], root, i);
    }
    if constexpr (TensorLike<T>) {
      if (!tensor_traits<T>::defined(parts[0])) return parts[0];
      return gather_leaf(parts, device, dim, rule, root);
    } else {
      std::vector<Leaves> leaves(parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto collect = collecting_to(leaves[i]);
        for_each_leaf(parts[i], root, collect);
      }
      T result = parts[0];
      auto concatenate = gathering_from(leaves, device, dim, rule);
      for_each_leaf(result, root, concatenate);
      return result;
    }
  }
}

}  // namespace detail::nested

// Puts the parts together: returns a structure like theirs in which each tensor is the
// concatenation of the parts' tensors along `dim`, on `device`.
//
// All parts must have the same structure, with equal numbers and strings in it. Tensors without
// dimensions become a vector with one element per part, with a warning; with Reduction::sum or
// mean, their sum or mean. Parts that are themselves numbers or strings become a std::vector. A
// type that can be neither concatenated nor compared does not compile, unless shared_by_replicas
// lets part 0's object stand for all.
//
// **Torch counterpart.** torch.nn.parallel.gather, which looks at part 0 alone.
// **Devices and streams.** As comm::gather. Any device, plain `cpu` included; a result there is
// complete when gather returns.
// **Backward.** Scatters the gradient back to the devices of the parts.
// **Threads and exceptions.** Any thread. ValueError for no outputs, for structures that differ (it
// names the place and the replica), or for the sum of another library's tensors whose tensor_traits
// have no weighted_sum; IndexError for a dim out of range, naming the place; ShapeError and
// DtypeError for tensors that do not fit together, naming the index; DtypeError for the mean of
// integers and the sum of u8 or booleans; DeviceError for a device that does not exist.
template <class T>
Gathered<T> gather(const std::vector<T>& outputs, Device device, std::int64_t dim = 0,
                   Reduction scalars = Reduction::none) {
  return detail::nested::gather(outputs, device, dim, {.reduction = scalars});
}

}  // namespace lockstep
