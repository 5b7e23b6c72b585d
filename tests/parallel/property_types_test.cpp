// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/scatter_gather.hpp>

#include "parallel/property_support.hpp"
#include "support/devices.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;

namespace property_types_test {

using ls::Tensor;
using ls::testing::property::DistinctTensors;
using ls::testing::property::Opaque;

enum class Mode { fast, exact };

// make(t, n): a structure whose tensors, made by t, have n rows.
template <class Make>
void check_type(const Make& make) {
  for (const std::size_t devices : {1U, 2U, 3U, 8U}) {
    for (const std::int64_t rows : {0, 1, 5, 8}) {
      for (const ls::Split& split : {ls::Split::chunk, ls::Split::balanced}) {
        SCOPED_TRACE(std::to_string(rows) + " rows over " + std::to_string(devices));
        DistinctTensors tensors;
        ls::testing::property::expect_round_trip(make(tensors, rows), first_devices(devices), rows,
                                                 0, split, "cpu:1");
      }
    }
  }
}

// Nothing in it has rows: every device gets all of it.
template <class T>
void check_undivided(const T& value) {
  for (const std::size_t devices : {1U, 3U}) {
    ls::testing::property::expect_round_trip(value, first_devices(devices), std::nullopt);
  }
}

using Make = DistinctTensors&;
using Rows = std::int64_t;

TEST(PropertyTypes, Tensor) {
  check_type([](Make t, Rows n) { return t.make({n}); });
  check_type([](Make t, Rows n) { return t.make({n, 3}, ls::Dtype::f32); });
  check_type([](Make t, Rows n) { return t.make({n, 2, 2}, ls::Dtype::i64, "cpu:0"); });
}

TEST(PropertyTypes, DescendantsOfTensor) {
  check_type([](Make t, Rows n) {
    return std::pair(ls::Parameter(t.make({n, 2})), ls::Buffer(t.make({n})));
  });
}

TEST(PropertyTypes, Tuple) {
  check_type([](Make t, Rows n) { return std::tuple(t.make({n})); });
  check_type([](Make t, Rows n) { return std::tuple(t.make({n}), 5, t.make({n, 2})); });
  check_type([](Make t, Rows n) {
    return std::tuple(std::tuple(), std::tuple(std::tuple(t.make({n})), std::string("s")), 'c');
  });
}

TEST(PropertyTypes, Pair) {
  check_type([](Make t, Rows n) { return std::pair(t.make({n, 2}), t.make({n})); });
  check_type([](Make t, Rows n) { return std::pair(std::string("name"), t.make({n})); });
  check_type([](Make t, Rows n) {
    return std::pair(std::pair(t.make({n}), Mode::exact), std::tuple(t.make({n}), 0.5));
  });
}

TEST(PropertyTypes, Array) {
  check_type([](Make t, Rows n) {
    return std::array{t.make({n}), t.make({n, 2}), t.make({n}, ls::Dtype::i64)};
  });
  check_type([](Make t, Rows n) {
    return std::array{std::pair(t.make({n}), 1), std::pair(t.make({n}), 2)};
  });
  check_type([](Make t, Rows n) {
    return std::tuple(std::array<Tensor, 0>(), std::array{1, 2, 3}, std::array{t.make({n})});
  });
}

TEST(PropertyTypes, Vector) {
  check_type([](Make t, Rows n) { return std::vector{t.make({n}), t.make({n, 3})}; });
  check_type([](Make t, Rows n) {
    return std::vector<std::vector<Tensor>>{{}, {t.make({n}), t.make({n})}, {t.make({n, 1})}};
  });
  check_type([](Make t, Rows n) { return std::pair(std::vector<Tensor>(), t.make({n})); });
  check_type([](Make t, Rows n) {
    return std::vector<std::tuple<std::string, Tensor>>{{"a", t.make({n})}, {"b", t.make({n})}};
  });
}

TEST(PropertyTypes, Map) {
  check_type([](Make t, Rows n) {
    return std::map<std::string, Tensor>{{"x", t.make({n})}, {"y", t.make({n, 2})}};
  });
  check_type([](Make t, Rows n) {
    return std::map<int, std::pair<Tensor, double>>{{3, {t.make({n}), 1}}, {-1, {t.make({n}), 2}}};
  });
  check_type([](Make t, Rows n) {
    return std::map<std::string, Tensor, std::greater<>>{{"x", t.make({n})}, {"y", t.make({n})}};
  });
  check_type([](Make t, Rows n) {
    return std::map<std::string, std::map<int, Tensor>>{{"none", {}}, {"one", {{1, t.make({n})}}}};
  });
}

TEST(PropertyTypes, UnorderedMap) {
  check_type([](Make t, Rows n) {
    std::unordered_map<std::string, Tensor> map;
    for (const char* key : {"zeta", "alpha", "mu", "nu", "xi"}) map[key] = t.make({n, 2});
    return map;
  });
  check_type([](Make t, Rows n) {
    return std::unordered_map<int, std::vector<Tensor>>{{7, {t.make({n}), t.make({n})}}, {2, {}}};
  });
}

TEST(PropertyTypes, Optional) {
  check_type([](Make t, Rows n) { return std::optional(t.make({n})); });
  check_type([](Make t, Rows n) { return std::pair(std::optional<Tensor>(), t.make({n})); });
  check_type([](Make t, Rows n) {
    return std::vector<std::optional<Tensor>>{t.make({n}), std::nullopt, t.make({n})};
  });
  check_type([](Make t, Rows n) {
    return std::optional(std::vector{std::optional(std::pair(t.make({n}), std::optional(4)))});
  });
}

TEST(PropertyTypes, Variant) {
  using TensorOrNumber = std::variant<Tensor, int>;
  check_type([](Make t, Rows n) { return TensorOrNumber(t.make({n})); });
  check_type([](Make t, Rows n) { return std::pair(TensorOrNumber(3), t.make({n})); });
  check_type([](Make t, Rows n) {
    return std::vector<TensorOrNumber>{t.make({n}), 2, t.make({n}), 4};
  });
  check_type([](Make t, Rows n) {
    return std::variant<std::monostate, std::string, std::pair<Tensor, Tensor>>(
        std::pair(t.make({n}), t.make({n, 2})));
  });
}

struct Batch {
  Tensor images;
  Tensor labels;
  double weight = 1;
  Mode mode = Mode::fast;

  auto fields() const { return std::tie(images, labels, weight, mode); }
};

Batch batch(Make t, Rows n) {
  return {t.make({n, 2, 2}, ls::Dtype::f32), t.make({n}, ls::Dtype::i64), 0.25, Mode::exact};
}

struct Nothing {
  auto fields() const { return std::tuple(); }
};

struct Nested {
  Nothing nothing;
  Batch batch;
  std::array<Batch, 2> batches;
  int numbers[3] = {1, 2, 3};
  std::optional<Batch> maybe;
  const int constant = 3;

  auto fields() const { return std::tie(nothing, batch, batches, numbers[2], maybe, constant); }
};

struct Rose {
  Tensor flower;
  std::vector<Rose> children;

  auto fields() const { return std::tie(flower, children); }
};

TEST(PropertyTypes, Struct) {
  check_type([](Make t, Rows n) { return batch(t, n); });
  check_type([](Make t, Rows n) { return std::pair(Nothing(), batch(t, n)); });
  check_type([](Make t, Rows n) {
    return Nested{{}, batch(t, n), {batch(t, n), batch(t, n)}, {4, 5, 6}, batch(t, n)};
  });
  check_type([](Make t, Rows n) {
    return std::map<std::string, std::vector<Batch>>{{"x", {batch(t, n), batch(t, n)}}};
  });
  check_type([](Make t, Rows n) {
    return Rose{t.make({n}), {Rose{Tensor(), {Rose{t.make({n, 2}), {}}}}, Rose{t.make({n}), {}}}};
  });
}

TEST(PropertyTypes, ConstantsBesideTensors) {
  check_type([](Make t, Rows n) {
    return std::tuple(t.make({n}), 1, 2.5F, true, 'c', std::string("s"), Mode::exact, Opaque(7));
  });
  check_type([](Make t, Rows n) {
    return std::tuple(std::vector{1, 2}, std::vector{true, false}, std::vector<std::string>{"a"},
                      t.make({n}), std::map<int, Opaque>{{1, Opaque(2)}}, std::monostate());
  });
  check_type([](Make t, Rows n) {
    return ls::KwargsMap{{"x", t.make({n})},         {"scale", 0.5}, {"name", std::string("n")},
                         {"count", std::int64_t{3}}, {"flag", true}, {"none", {}}};
  });
}

TEST(PropertyTypes, TensorsWithoutDimensionsBesideOthers) {
  const ls::testing::CaughtWarnings warnings;
  check_type([](Make t, Rows n) { return std::pair(t.make({}), t.make({n, 2})); });
  check_type([](Make t, Rows n) { return std::vector{t.make({n}), t.make({}), Tensor()}; });
  EXPECT_GT(warnings.count("scalars"), 0);
}

TEST(PropertyTypes, NothingToDivide) {
  const ls::testing::CaughtWarnings warnings;
  DistinctTensors t;
  check_undivided(t.make({}));
  check_undivided(Tensor());
  check_undivided(std::tuple());
  check_undivided(std::tuple(1, std::string("s")));
  check_undivided(std::vector<Tensor>());
  check_undivided(std::vector{1, 2, 3});
  check_undivided(std::optional<Tensor>());
  check_undivided(std::variant<Tensor, int>(4));
  check_undivided(std::monostate());
  check_undivided(Opaque(3));
  check_undivided(Nothing());
  check_undivided(std::pair(Opaque(3), std::map<std::string, Tensor>()));
}

// Gathering plain values gives all of them.
template <class T>
void check_plain(const T& value) {
  const ls::Scattered<T> parts = ls::scatter(value, first_devices(3));
  static_assert(std::is_same_v<decltype(ls::gather(parts, "cpu")), std::vector<T>>);
  EXPECT_EQ(ls::gather(parts, "cpu"), std::vector<T>(3, value));
}

TEST(PropertyTypes, PlainValues) {
  check_plain(5);
  check_plain(0.5);
  check_plain(std::string("text"));
  check_plain(Mode::exact);
}

}  // namespace property_types_test
