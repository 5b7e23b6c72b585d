// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

// Properties that hold of every structure, and what it takes to check them without the library's
// own walk.
namespace lockstep::testing::property {

// LOCKSTEP_TEST_SEED, or always the same.
inline std::uint64_t seed() {
  const char* text = std::getenv("LOCKSTEP_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 20240;
}

// How many random cases a test makes up: LOCKSTEP_TEST_CASES, or so many.
inline std::size_t cases(std::size_t otherwise) {
  const char* text = std::getenv("LOCKSTEP_TEST_CASES");
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Which of a test's random cases this is, for SCOPED_TRACE.
inline std::string name_of_case(std::size_t number) {
  return "LOCKSTEP_TEST_SEED=" + std::to_string(seed()) + ", case " + std::to_string(number);
}

// Random choices, the same on every machine: splitmix64.
class Random {
 public:
  // Each case has a sequence of its own.
  explicit Random(std::size_t number) : state_(seed() + number * 0x632be59bd9b4e019U) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // low ≤ result ≤ high
  template <std::integral T>
  T between(T low, T high) {
    const auto count = static_cast<std::uint64_t>(high - low) + 1;
    return static_cast<T>(low + static_cast<T>(next() % count));
  }
  bool one_in(std::uint64_t n) { return next() % n == 0; }
  // −1 ≤ result < 1
  double real() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }

  Device device(std::size_t count) {
    return one_in(2) ? Device() : first_devices(count)[between<std::size_t>(0, count - 1)];
  }
  Tensor reals(const Shape& shape, Device device = {}) {
    std::vector<double> values(static_cast<std::size_t>(numel(shape)));
    for (double& value : values) value = real();
    return from_values(values, shape, device);
  }
  const Split& split() { return one_in(2) ? Split::chunk : Split::balanced; }

 private:
  std::uint64_t state_;
};

// Makes tensors in which no two elements are alike, not even of two tensors.
class DistinctTensors {
 public:
  Tensor make(const Shape& shape, Dtype dtype = Dtype::f64, Device device = {}) {
    std::vector<double> values(static_cast<std::size_t>(numel(shape)));
    for (double& value : values) value = next_++;
    return from_values(values, shape).to(dtype).to(device);
  }

 private:
  double next_ = 1;
};

inline std::vector<double> values_of(const Tensor& tensor) {
  return (tensor.dtype() == Dtype::f64 ? tensor : tensor.to(Dtype::f64)).to_vector<double>();
}

// A class of which nothing is known but that it can be copied, and that all replicas have the same.
class Opaque {
 public:
  explicit Opaque(int id) : id_(id) {}
  int id() const { return id_; }

 private:
  int id_;
};

}  // namespace lockstep::testing::property

template <>
inline constexpr bool lockstep::shared_by_replicas<lockstep::testing::property::Opaque> = true;

namespace lockstep::testing::property {

// A structure laid flat: its tensors, and all else as text. Structs list their members in
// `fields()`.
struct Flat {
  std::vector<Tensor> tensors;
  std::string rest;

  template <class T>
  explicit Flat(const T& value) {
    add(value);
  }

 private:
  template <class T>
  void add(const T& value) {
    if constexpr (std::derived_from<T, Tensor>) {
      rest += value.defined() ? "tensor " : "undefined ";
      if (value.defined()) tensors.push_back(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      rest += std::to_string(static_cast<double>(value)) + ' ';
    } else if constexpr (std::is_same_v<T, std::string>) {
      rest += '"' + value + "\" ";
    } else if constexpr (std::is_same_v<T, Opaque>) {
      rest += "opaque " + std::to_string(value.id()) + ' ';
    } else if constexpr (std::is_same_v<T, std::monostate>) {
      rest += "none ";
    } else if constexpr (requires { value.fields(); }) {
      add(value.fields());
    } else if constexpr (requires { value.has_value(); }) {
      rest += value ? "some " : "empty ";
      if (value) add(*value);
    } else if constexpr (requires { value.valueless_by_exception(); }) {
      rest += "alternative " + std::to_string(value.index()) + ' ';
      std::visit([this](const auto& alternative) { this->add(alternative); }, value);
    } else if constexpr (requires { typename T::mapped_type; }) {
      std::map<typename T::key_type, const typename T::mapped_type*> sorted;
      for (const auto& [key, element] : value) sorted[key] = &element;
      rest += "{ ";
      for (const auto& [key, element] : sorted) {
        add(key);
        add(*element);
      }
      rest += "} ";
    } else {
      rest += "( ";
      if constexpr (requires { value.begin(); }) {
        for (const auto& element : value) add(element);
      } else {
        std::apply([this](const auto&... elements) { (this->add(elements), ...); }, value);
      }
      rest += ") ";
    }
  }
};

// Where an element of a part is in the whole, whose row `start` along `dim` is the part's first.
inline std::size_t place_in_whole(std::size_t element, const Shape& part, const Shape& whole,
                                  std::size_t dim, std::int64_t start) {
  std::size_t place = 0;
  std::size_t stride = 1;
  for (std::size_t d = part.size(); d-- > 0;) {
    const auto length = static_cast<std::size_t>(part[d]);
    place += (element % length + (d == dim ? static_cast<std::size_t>(start) : 0)) * stride;
    element /= length;
    stride *= static_cast<std::size_t>(whole[d]);
  }
  return place;
}

// The parts hold each row of the whole exactly once, in order, each on its device.
inline void expect_rows_in_order(const Tensor& whole, const std::vector<Tensor>& parts,
                                 std::int64_t dim, const std::vector<std::int64_t>& sizes,
                                 const std::vector<Device>& devices) {
  const auto rank = whole.dim();
  const auto along = static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
  const std::vector<double> values = values_of(whole);
  std::vector<int> found(values.size(), 0);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].device(), devices[i]);
    EXPECT_EQ(parts[i].dtype(), whole.dtype());
    Shape shape = whole.sizes();
    if (rank > 0) shape[along] = sizes[i];
    ASSERT_EQ(parts[i].sizes(), shape);
    const std::vector<double> part = values_of(parts[i]);
    for (std::size_t e = 0; e < part.size(); ++e) {
      const std::size_t place = place_in_whole(e, shape, whole.sizes(), along, start);
      ASSERT_EQ(part[e], values[place]) << "element " << e << " of part " << i;
      ++found[place];
    }
    if (rank > 0) start += sizes[i];
  }
  const int times = rank > 0 ? 1 : static_cast<int>(parts.size());
  EXPECT_TRUE(std::all_of(found.begin(), found.end(), [&](int n) { return n == times; }));
}

// `gathered` is `whole`, on `target`: all of its tensors, of those without dimensions a list.
inline void expect_whole(const Flat& gathered, const Flat& whole, std::size_t parts,
                         Device target) {
  ASSERT_EQ(gathered.rest, whole.rest);
  ASSERT_EQ(gathered.tensors.size(), whole.tensors.size());
  for (std::size_t j = 0; j < whole.tensors.size(); ++j) {
    const Tensor& tensor = whole.tensors[j];
    EXPECT_EQ(gathered.tensors[j].device(), target);
    EXPECT_EQ(gathered.tensors[j].dtype(), tensor.dtype());
    std::vector<double> expected = values_of(tensor);
    if (tensor.dim() == 0) {
      expected.resize(parts, expected[0]);
      EXPECT_EQ(gathered.tensors[j].sizes(), Shape({static_cast<std::int64_t>(parts)}));
    } else {
      EXPECT_EQ(gathered.tensors[j].sizes(), tensor.sizes());
    }
    EXPECT_EQ(values_of(gathered.tensors[j]), expected);
  }
}

// `parts` are those into which `whole` is divided as `sizes` say along `dim`, each on its device.
inline void expect_parts(const std::vector<Flat>& parts, const Flat& whole, std::int64_t dim,
                         const std::vector<std::int64_t>& sizes,
                         const std::vector<Device>& devices) {
  ASSERT_EQ(parts.size(), sizes.size());
  for (const Flat& part : parts) {
    ASSERT_EQ(part.rest, whole.rest);
    ASSERT_EQ(part.tensors.size(), whole.tensors.size());
  }
  for (std::size_t j = 0; j < whole.tensors.size(); ++j) {
    std::vector<Tensor> of_parts;
    for (const Flat& part : parts) of_parts.push_back(part.tensors[j]);
    expect_rows_in_order(whole.tensors[j], of_parts, dim, sizes, devices);
  }
}

// Scatters and gathers `whole`. `rows` is the length of its tensors along `dim`, if any has one.
//
// - There are as many parts as split_sizes says, or one a device if nothing is to be divided.
// - Every tensor's rows are in the parts once and in order, each part on its device.
// - All else is the same in every part.
// - Together again the parts are the whole; of tensors without dimensions there is a list.
template <class T>
void expect_round_trip(const T& whole, const std::vector<Device>& devices,
                       std::optional<std::int64_t> rows, std::int64_t dim = 0,
                       const Split& split = Split::chunk, Device target = {}) {
  const Scattered<T> parts = scatter(whole, devices, dim, split);
  const auto sizes = rows ? split_sizes(*rows, devices.size(), split)
                          : std::vector<std::int64_t>(devices.size(), 0);
  const Flat flat(whole);
  expect_parts(std::vector<Flat>(parts.begin(), parts.end()), flat, dim, sizes, devices);
  expect_whole(Flat(gather(parts, target, dim)), flat, sizes.size(), target);
}

}  // namespace lockstep::testing::property
