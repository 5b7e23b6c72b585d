// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/nested/move_to.hpp>
#include <lockstep/parallel/nested/scatter_plan.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/parallel/split.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Where prefetch places the parts of a batch.
namespace lockstep::data {

// An element of each batch that goes undivided to one device: see `whole`.
template <std::size_t element>
struct Whole {
  Device device;
};

// Tells prefetch to put an element of each batch, counted from 0, undivided on one device.
//
// **Example.** ls::data::prefetch(loader, devices, ls::data::whole<1>("cpu:0"))
template <std::size_t element>
Whole<element> whole(Device device) {
  return {device};
}

namespace detail {

namespace nested = lockstep::detail::nested;

// Batches that are divided element by element, since their number is known: each element becomes a
// Scattered.
template <class Batch>
concept Elementwise = requires {
  std::tuple_size<Batch>::value;
  requires nested::Structure<Batch>::form != nested::Form::none;
};

// Pairs stay pairs; tuples and arrays become tuples.
template <class Batch, class... Element>
struct PlacedRow {
  using Type = std::tuple<Element...>;
};
template <class First, class Second, class... Element>
struct PlacedRow<std::pair<First, Second>, Element...> {
  using Type = std::pair<Element...>;
};

// Places the whole batch on one device.
class OnOneDevice {
 public:
  explicit OnOneDevice(Device device) : device_(device) {}

  std::vector<Device> devices() const { return {device_}; }

  template <class Batch>
  Batch place(const Batch& batch) const {
    return nested::on_device(batch, device_);
  }

 private:
  Device device_;
};

// Divides the batch over several devices, all elements by one plan, except those to be whole.
template <std::size_t... whole>
class OverDevices {
 public:
  OverDevices(std::vector<Device> devices, std::int64_t dim, const Split& split,
              const Whole<whole>&... elsewhere)
      : devices_(std::move(devices)), dim_(dim), split_(split), elsewhere_{elsewhere.device...} {
    check<ValueError>(!devices_.empty(), "prefetch: expected at least one device");
  }

  std::vector<Device> devices() const {
    std::vector<Device> all = devices_;
    all.insert(all.end(), elsewhere_.begin(), elsewhere_.end());
    return all;
  }

  template <class Batch>
  auto place(const Batch& batch) const {
    nested::ScatterPlan plan(devices_, dim_, split_);
    const nested::Path root("batch");
    if constexpr (Elementwise<Batch>) {
      constexpr std::size_t count = std::tuple_size_v<Batch>;
      static_assert(((whole < count) && ...), "lockstep: prefetch: the batch has no such element");
      return [&]<std::size_t... i>(std::index_sequence<i...>) {
        (add<i>(plan, std::get<i>(batch), nested::Path(root, i)), ...);
        plan.decide();
        // In braces, so that the elements are copied in order.
        using Row = PlacedRow<Batch, PlacedElement<i, std::tuple_element_t<i, Batch>>...>;
        return typename Row::Type{put<i>(plan, std::get<i>(batch))...};
      }
      (std::make_index_sequence<count>());
    } else {
      static_assert(sizeof...(whole) == 0,
                    "lockstep: prefetch: whole<i> needs batches that are pairs, tuples or arrays");
      lockstep::detail::require_scatterable<Batch>();
      nested::plan_argument(plan, batch, root);
      plan.decide();
      return Scattered<Batch>(nested::scatter_argument(plan, batch));
    }
  }

 private:
  static constexpr std::array<std::size_t, sizeof...(whole)> kWhole{whole...};

  template <std::size_t i>
  static constexpr bool is_whole = ((whole == i) || ...);

  template <std::size_t i, class Element>
  using PlacedElement = std::conditional_t<is_whole<i>, Element, Scattered<Element>>;

  template <std::size_t i, class Element>
  static void add(nested::ScatterPlan& plan, const Element& element, const nested::Path& path) {
    lockstep::detail::require_scatterable<Element>();
    if constexpr (!is_whole<i>) nested::plan_argument(plan, element, path);
  }

  template <std::size_t i, class Element>
  PlacedElement<i, Element> put(const nested::ScatterPlan& plan, const Element& element) const {
    if constexpr (is_whole<i>) {
      const auto place = std::find(kWhole.begin(), kWhole.end(), i) - kWhole.begin();
      return nested::on_device(element, elsewhere_[static_cast<std::size_t>(place)]);
    } else {
      return Scattered<Element>(nested::scatter_argument(plan, element));
    }
  }

  std::vector<Device> devices_;
  std::int64_t dim_;
  Split split_;
  std::array<Device, sizeof...(whole)> elsewhere_;
};

}  // namespace detail

}  // namespace lockstep::data
