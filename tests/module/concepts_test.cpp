// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/concepts.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

namespace lockstep {
namespace concepts_test {

struct WithForward {
  int forward(int x) { return x + 1; }
};

struct WithCall {
  int operator()(int x) const { return x + 2; }
};

struct WithBoth {
  int forward(int x) { return x + 1; }
  int operator()(int x) { return x + 2; }
  int operator()(const std::string& text) { return static_cast<int>(text.size()); }
};

struct Overloaded {
  int forward(int x) { return x; }
  int forward(int x, int y) { return x + y; }
};

struct Template {
  template <class T>
  T forward(T x) {
    return x;
  }
};

struct Final final {
  int forward(int x) const { return x; }
};

struct Neither {
  int backward(int x) { return x; }
};

struct MoveOnly {
  std::unique_ptr<int> pointer;
  int forward(int x) { return x; }
};

TEST(ModuleConcept, AnyCopyableTypeWithForwardOrCallOperator) {
  static_assert(Module<WithForward> && Module<WithCall> && Module<WithBoth>);
  static_assert(Module<Overloaded> && Module<Template> && Module<Final>);
  static_assert(Module<std::function<int(int)>>);
  static_assert(!Module<Neither> && !Module<MoveOnly> && !Module<int> && !Module<std::string>);
  const auto lambda = [](auto x) { return x; };
  static_assert(Module<decltype(lambda)>);
}

TEST(ModuleConcept, TellsWhichArgumentsForwardTakes) {
  static_assert(ForwardableWith<WithForward, int> && !ForwardableWith<WithForward, std::string>);
  static_assert(ForwardableWith<Overloaded, int, int> && !ForwardableWith<Overloaded>);
  static_assert(ForwardableWith<WithBoth, std::string>);
  static_assert(!ForwardableWith<const WithForward, int> && ForwardableWith<const WithCall, int>);
}

TEST(ModuleConcept, ForwardIsPreferredToTheCallOperator) {
  WithForward forward;
  const WithCall call;
  WithBoth both;
  EXPECT_EQ(detail::forward(forward, 1), 2);
  EXPECT_EQ(detail::forward(call, 1), 3);
  EXPECT_EQ(detail::forward(both, 1), 2);
  EXPECT_EQ(detail::forward(both, std::string("four")), 4);
  MoveOnly move_only;
  EXPECT_EQ(detail::forward(move_only, 5), 5);
}

TEST(ModuleConcept, ForwardPassesReferencesAndMoveOnlyArguments) {
  struct Identity {
    int& forward(std::unique_ptr<int> /*taken*/, int& x) { return x; }
  } identity;
  int x = 1;
  int& result = detail::forward(identity, std::make_unique<int>(3), x);
  EXPECT_EQ(&result, &x);
}

}  // namespace concepts_test
}  // namespace lockstep
