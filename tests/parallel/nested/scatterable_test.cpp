// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/kwargs.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/replicas/shared_by_replicas.hpp>
#include <lockstep/parallel/scattered.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <any>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <list>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ls = lockstep;

namespace scatterable_test {

using ls::Scatterable;
using ls::Tensor;
using ls::detail::nested::Obstacle;

template <class T>
constexpr Obstacle obstacle = decltype(ls::detail::nested::find_obstacle<T>())::obstacle;

enum class Mode { fast, exact };
struct Incomplete;

struct Tree {
  std::variant<std::monostate, Tensor, double, std::vector<Tree>, std::map<std::string, Tree>>
      value;
};
struct LinkedData {
  int number;
  std::shared_ptr<LinkedData> next;
};
class Opaque {
 public:
  explicit Opaque(const Tensor& tensor) : tensor_(tensor) {}

 private:
  Tensor tensor_;
};
struct Json {
  using value_type = Json;
};
struct Net {
  ls::Parameter weight;
  Tensor forward(const Tensor& x) const { return x; }
};
struct Activation {
  double slope;
  std::string name;
  Tensor operator()(const Tensor& x) const { return x; }
};
struct EmptyBase {};
struct WithEmptyBase : EmptyBase {
  Tensor x;
};

struct Many {
  std::pair<Tensor, std::optional<Tree>> pair;
  std::unordered_map<std::string, std::array<Tensor, 2>> map;
  int numbers[3];
  std::function<Tensor(Tensor)> function;
  Tensor (*plain_function)(const Tensor&);
  std::shared_ptr<Net> module;
  const Incomplete* incomplete;
  std::FILE* file;
  void* address;
  std::any any;
  std::filesystem::path path;
  std::deque<std::string> words;
  const double constant = 1;
};

TEST(Scatterable, StructuresAndConstantsAre) {
  EXPECT_TRUE(Scatterable<Tensor>);
  EXPECT_TRUE(Scatterable<ls::Parameter>);
  EXPECT_TRUE(Scatterable<Tree>);
  EXPECT_TRUE(Scatterable<Many>);
  EXPECT_TRUE(Scatterable<WithEmptyBase>);
  EXPECT_TRUE(Scatterable<ls::KwargsMap>);
  EXPECT_TRUE((Scatterable<std::tuple<const int, const std::string&, Tensor>>));
  EXPECT_TRUE(Scatterable<std::tuple<>>);
  EXPECT_TRUE(Scatterable<bool>);
  EXPECT_TRUE(Scatterable<Mode>);
  EXPECT_TRUE(Scatterable<std::string>);
  EXPECT_TRUE(Scatterable<const char*>);
  EXPECT_TRUE(Scatterable<std::vector<bool>>);
  EXPECT_TRUE(Scatterable<std::chrono::seconds>);
}

TEST(Scatterable, WhatNobodyCanLookIntoIs) {
  EXPECT_TRUE(Scatterable<std::any>);
  EXPECT_TRUE(Scatterable<std::shared_ptr<Opaque>>) << "all replicas are to have one";
  EXPECT_TRUE(Scatterable<std::shared_ptr<std::mutex>>);
  EXPECT_TRUE(Scatterable<Activation>);
  EXPECT_TRUE(Scatterable<std::function<Tensor(Tensor)>>);
  EXPECT_TRUE(Scatterable<std::shared_ptr<Net>>);
  EXPECT_TRUE(Scatterable<Json>);
  EXPECT_TRUE(Scatterable<LinkedData>);
}

class Shown : public Opaque {
 public:
  using Opaque::Opaque;
  Tensor tensor;
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("tensor", self.tensor);
  }
};
template <class T>
class Pair {
 public:
  explicit Pair(T first) : first_(std::move(first)) {}

 private:
  T first_;
  Tensor second_;
};
class Colour {
 public:
  explicit Colour(int number) : number_(number) {}

 private:
  [[maybe_unused]] int number_;
};
class Name {
 public:
  explicit Name(std::string text) : text_(std::move(text)) {}
  operator std::string_view() const { return text_; }

 private:
  std::string text_;
};
struct Samples {
  std::string name;
  std::vector<Opaque> all;
};

TEST(Scatterable, ClassesWhoseMembersNobodyCanSeeAreNot) {
  EXPECT_EQ(obstacle<Opaque>, Obstacle::hidden);
  EXPECT_EQ(obstacle<Shown>, Obstacle::hidden) << "the hook is for modules";
  EXPECT_EQ(obstacle<Pair<std::string>>, Obstacle::hidden) << "no class of the standard library";
  EXPECT_EQ(obstacle<Samples>, Obstacle::hidden);
  EXPECT_EQ((obstacle<std::pair<Tensor, std::optional<Opaque>>>), Obstacle::hidden);
  EXPECT_EQ(obstacle<std::deque<Samples>>, Obstacle::hidden);
  EXPECT_EQ((obstacle<std::multimap<int, Opaque>>), Obstacle::hidden);
}

template <class T>
auto local_class() {
  class Local {
   public:
    explicit Local(const Tensor& tensor) : tensor_(tensor) {}

   private:
    Tensor tensor_;
  };
  return std::optional<Local>();
}

TEST(Scatterable, AClassWithinAFunctionTemplateIsNot) {
  EXPECT_EQ(obstacle<decltype(local_class<std::any>())>, Obstacle::hidden);
}

TEST(Scatterable, ClassesThatHaveNoTensorsAre) {
  EXPECT_TRUE(Scatterable<Colour>) << "it owns no memory";
  EXPECT_TRUE(Scatterable<Name>) << "it is a string";
  EXPECT_TRUE(Scatterable<std::filesystem::path>);
  EXPECT_TRUE(Scatterable<std::exception_ptr>);
  EXPECT_TRUE(Scatterable<std::mt19937>);
  EXPECT_TRUE(Scatterable<std::deque<std::locale>>);
}

struct RawPointer {
  Tensor* tensor;
  int number;
};
struct LinkedTensors {
  Tensor tensor;
  std::shared_ptr<LinkedTensors> next;
};

TEST(Scatterable, PointersToTensorsAreNot) {
  EXPECT_EQ(obstacle<const Tensor*>, Obstacle::pointer);
  EXPECT_EQ(obstacle<RawPointer>, Obstacle::pointer);
  EXPECT_EQ(obstacle<LinkedTensors>, Obstacle::pointer);
  EXPECT_EQ(obstacle<std::unique_ptr<Tensor>>, Obstacle::pointer);
  EXPECT_EQ(obstacle<std::shared_ptr<Tensor[]>>, Obstacle::pointer);
  EXPECT_EQ(obstacle<std::weak_ptr<std::vector<Tensor>>>, Obstacle::pointer);
  EXPECT_EQ(obstacle<std::reference_wrapper<Tensor>>, Obstacle::pointer);
  EXPECT_EQ(obstacle<std::optional<ls::Parameter*>>, Obstacle::pointer);
}

struct Functor {
  const Tensor offset;
  Tensor operator()(const Tensor& x) const { return x; }
};
class Layer {
 public:
  Tensor forward(const Tensor& x) const { return x; }
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight_);
  }

 private:
  ls::Parameter weight_;
};
struct Block {
  Layer layer;
  Tensor forward(const Tensor& x) const { return x; }
};

TEST(Scatterable, ModulesThatShowTheirTensorsAreNot) {
  EXPECT_EQ(obstacle<Net>, Obstacle::functor);
  EXPECT_EQ(obstacle<Functor>, Obstacle::functor);
  EXPECT_EQ(obstacle<Layer>, Obstacle::functor);
  EXPECT_EQ(obstacle<Block>, Obstacle::functor);
  EXPECT_EQ((obstacle<std::tuple<Tensor, std::vector<Net>>>), Obstacle::functor);
}

// What is refused is not walked either.
TEST(Scatterable, TheWalkGoesIntoNoModule) {
  const Net net{ls::Parameter(ls::ones({2}))};
  const Functor functor{ls::ones({2})};
  int met = 0;
  const auto count = [&met](const auto&, const auto&) { ++met; };
  ls::detail::nested::for_each_leaf(net, ls::detail::nested::Path("net"), count);
  ls::detail::nested::for_each_leaf(functor, ls::detail::nested::Path("functor"), count);
  EXPECT_EQ(met, 0);
}

class Matrix {
 public:
  double operator()(int row, int column) const { return values_.at(0) * row * column; }
  int rows() const { return 1; }
  int cols() const { return 1; }

 private:
  std::vector<double> values_;
};
struct Grid {
  std::vector<double> values;
  std::vector<int> shape() const { return {1}; }
};
struct Batch {
  Tensor images;
  std::vector<int> shape() const { return {1}; }
};
struct Size {
  int height;
  int width;
  std::array<int, 2> dims() const { return {height, width}; }
};

TEST(Scatterable, WhatLooksLikeATensorIsNot) {
  EXPECT_EQ(obstacle<Matrix>, Obstacle::no_traits);
  EXPECT_EQ(obstacle<Grid>, Obstacle::no_traits);
  EXPECT_EQ((obstacle<std::map<int, std::optional<Matrix>>>), Obstacle::no_traits);
  EXPECT_TRUE(Scatterable<std::shared_ptr<const Matrix>>) << "many may read one";
  EXPECT_TRUE(Scatterable<Batch>) << "its tensors are divided";
  EXPECT_TRUE(Scatterable<Size>) << "it owns no memory";
}

struct Array {
  Tensor tensors[2];
};

TEST(Scatterable, ContainersThatAreNotDividedAreNot) {
  EXPECT_EQ(obstacle<std::deque<Tensor>>, Obstacle::container);
  EXPECT_EQ(obstacle<std::list<std::vector<Tensor>>>, Obstacle::container);
  EXPECT_EQ(obstacle<std::set<Tree>>, Obstacle::container);
  EXPECT_EQ((obstacle<std::multimap<int, Tensor>>), Obstacle::container);
  EXPECT_EQ(obstacle<std::queue<Tensor>>, Obstacle::container);
  EXPECT_EQ(obstacle<std::span<const Tensor>>, Obstacle::container);
  EXPECT_EQ(obstacle<std::initializer_list<Tensor>>, Obstacle::container);
  EXPECT_EQ(obstacle<std::vector<Tensor>::iterator>, Obstacle::container);
  EXPECT_EQ(obstacle<Tensor[2]>, Obstacle::container);
  EXPECT_EQ(obstacle<Array>, Obstacle::container);
  EXPECT_EQ((obstacle<std::variant<int, std::deque<int>, std::list<Tensor>>>), Obstacle::container);
}

TEST(Scatterable, PartsWithinAStructureAreNot) {
  EXPECT_EQ((obstacle<std::pair<int, ls::Scattered<Tensor>>>), Obstacle::scattered);
}

struct Base {
  std::string name;
  Tensor tensor;
};
struct Derived : Base {
  int number;
};
struct Reference {
  Tensor& tensor;
  int number;
};

TEST(Scatterable, StructsThatCannotBeReadAreNot) {
  EXPECT_EQ(obstacle<Derived>, Obstacle::unreadable);
  EXPECT_EQ(obstacle<std::vector<Reference>>, Obstacle::unreadable);
}

struct ConstReference {
  const Tensor& tensor;
};
struct Constant {
  const Tensor tensor;
  int number;
};

TEST(Scatterable, TensorsThatCannotBeReplacedAreNot) {
  EXPECT_EQ(obstacle<Constant>, Obstacle::not_assignable);
  EXPECT_EQ(obstacle<ConstReference>, Obstacle::not_assignable);
  EXPECT_EQ(obstacle<std::tuple<Tensor&>>, Obstacle::not_assignable);
  EXPECT_EQ((obstacle<std::pair<const Tensor&, int>>), Obstacle::not_assignable);
  EXPECT_EQ(obstacle<std::tuple<const Tree>>, Obstacle::not_assignable);
}

struct Key {
  int number;
};

TEST(Scatterable, WhatCannotBeCopiedOrOrderedIsNot) {
  EXPECT_EQ(obstacle<char[4]>, Obstacle::array);
  EXPECT_EQ(obstacle<std::unique_ptr<int>>, Obstacle::not_copyable);
  EXPECT_EQ((obstacle<std::map<int, std::unique_ptr<int>>>), Obstacle::not_copyable);
  EXPECT_EQ((obstacle<std::tuple<Tensor, std::atomic<int>>>), Obstacle::not_copyable);
  EXPECT_EQ((obstacle<std::unordered_map<Key, int>>), Obstacle::key);
}

struct Teacher {
  ls::Parameter weight;
  std::deque<Tensor> history;
  Tensor forward(const Tensor& x) const { return x; }
};
class Table {
 public:
  int rows() const { return static_cast<int>(values_.size()); }
  int cols() const { return 1; }

 private:
  std::vector<double> values_;
};

}  // namespace scatterable_test

template <>
inline constexpr bool lockstep::shared_by_replicas<scatterable_test::Teacher> = true;
template <>
inline constexpr bool lockstep::shared_by_replicas<scatterable_test::Table> = true;

namespace scatterable_test {

TEST(Scatterable, WhatIsMarkedAsSharedIs) {
  EXPECT_TRUE(Scatterable<Teacher>);
  EXPECT_TRUE((Scatterable<std::pair<Tensor, const Teacher>>));
  EXPECT_TRUE(Scatterable<Table>);
}

}  // namespace scatterable_test
