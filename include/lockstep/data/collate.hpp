// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/rows.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::data {

// How samples of type T become a batch: `static Batch apply(std::vector<T>&& samples)`. To be
// specialised for samples of other types than collate knows.
template <class T>
struct Collate {
  static_assert(!std::is_same_v<T, T>,
                "lockstep: collate does not know samples of this type: use tensors, numbers, "
                "strings, or pairs, tuples and arrays of them, or specialise "
                "lockstep::data::Collate");
};

// Makes a batch of samples, element by element: tensors are stacked along a new first dimension,
// numbers become a vector (whole numbers and bool i64, double f64, float f32), strings a
// std::vector of them; pairs, tuples and arrays of these become pairs, tuples and arrays of
// batches.
//
// **Torch counterpart.** torch.utils.data.default_collate.
// **Backward.** Not recorded.
// **Threads and exceptions.** ShapeError, DtypeError or DeviceError for tensors that do not fit
// each other, naming the samples by their place in the batch; ValueError for no samples.
template <class T>
auto collate(std::vector<T> samples) {
  check<ValueError>(!samples.empty(), "collate: there are no samples");
  return Collate<T>::apply(std::move(samples));
}

template <>
struct Collate<Tensor> {
  static Tensor apply(const std::vector<Tensor>& samples) { return detail::stack_rows(samples); }
};

template <class T>
requires std::is_arithmetic_v<T>
struct Collate<T> {
  using Stored =
      std::conditional_t<std::floating_point<T>,
                         std::conditional_t<std::same_as<T, float>, float, double>, std::int64_t>;

  static Tensor apply(const std::vector<T>& samples) {
    std::vector<Stored> values;
    values.reserve(samples.size());
    for (const T sample : samples) values.push_back(static_cast<Stored>(sample));
    return from_values(values, {static_cast<std::int64_t>(values.size())});
  }
};

template <>
struct Collate<std::string> {
  static std::vector<std::string> apply(std::vector<std::string> samples) { return samples; }
};

namespace detail {

// Element `i` of every sample.
template <std::size_t i, class T>
auto elements(std::vector<T>& samples) {
  std::vector<std::tuple_element_t<i, T>> column;
  column.reserve(samples.size());
  for (T& sample : samples) column.push_back(std::move(std::get<i>(sample)));
  return column;
}

}  // namespace detail

template <class... Parts>
struct Collate<std::tuple<Parts...>> {
  static auto apply(std::vector<std::tuple<Parts...>> samples) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::make_tuple(collate(detail::elements<i>(samples))...);
    }
    (std::index_sequence_for<Parts...>());
  }
};

template <class First, class Second>
struct Collate<std::pair<First, Second>> {
  static auto apply(std::vector<std::pair<First, Second>> samples) {
    return std::pair(collate(detail::elements<0>(samples)), collate(detail::elements<1>(samples)));
  }
};

template <class T, std::size_t count>
struct Collate<std::array<T, count>> {
  static auto apply(std::vector<std::array<T, count>> samples) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array{collate(detail::elements<i>(samples))...};
    }
    (std::make_index_sequence<count>());
  }
};

}  // namespace lockstep::data
