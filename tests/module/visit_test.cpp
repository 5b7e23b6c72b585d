// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/visit.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace visit_test {

struct Aggregate {
  int first = 1;
  std::unique_ptr<int> second;
  const double third = 3;
};

class Hooked {
 public:
  explicit Hooked(int weight) : weight_(weight) {}

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight_);
    visit("bias", self.bias_);
  }

 private:
  int weight_;
  float bias_ = 0.5F;
  std::string not_given_;
};

// The hook goes before reflection.
struct HookedAggregate {
  int hidden = 0;
  int shown = 7;

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("renamed", self.shown);
  }
};

class Opaque {
 public:
  Opaque() = default;

 private:
  [[maybe_unused]] int value_ = 0;
};

template <class T>
std::vector<std::string> names_of(T& object) {
  std::vector<std::string> names;
  for_each_member(object,
                  [&](std::string_view name, auto& /*member*/) { names.emplace_back(name); });
  return names;
}

TEST(Visit, ConceptsTellHookFromReflection) {
  static_assert(Reflectable<Aggregate> && !HasVisitMembers<Aggregate>);
  static_assert(!Reflectable<Hooked> && HasVisitMembers<Hooked> && HasVisitMembers<const Hooked>);
  static_assert(Reflectable<HookedAggregate> && HasVisitMembers<HookedAggregate>);
  static_assert(!Reflectable<Opaque> && !HasVisitMembers<Opaque>);
  static_assert(!Reflectable<int> && !HasVisitMembers<int>);
}

TEST(Visit, AggregatesAreVisitedInTheOrderOfDeclaration) {
  Aggregate object;
  EXPECT_EQ(names_of(object), (std::vector<std::string>{"first", "second", "third"}));
}

TEST(Visit, TheHookNamesTheMembers) {
  Hooked object(1);
  EXPECT_EQ(names_of(object), (std::vector<std::string>{"weight", "bias"}));
  HookedAggregate aggregate;
  EXPECT_EQ(names_of(aggregate), (std::vector<std::string>{"renamed"}));
}

TEST(Visit, MembersCanBeChangedThroughTheVisitor) {
  Aggregate aggregate;
  for_each_member(aggregate, []<class Member>(std::string_view, Member& member) {
    if constexpr (std::is_same_v<Member, int>) member = 5;
  });
  EXPECT_EQ(aggregate.first, 5);
  HookedAggregate hooked;
  for_each_member(hooked, [](std::string_view, int& member) { member = 5; });
  EXPECT_EQ(hooked.shown, 5);
}

TEST(Visit, MembersOfConstObjectsAreConst) {
  const auto expect_const = []<class Member>(std::string_view, Member&) {
    static_assert(std::is_const_v<Member>);
  };
  const Aggregate aggregate;
  for_each_member(aggregate, expect_const);
  const Hooked hooked(1);
  for_each_member(hooked, expect_const);
}

}  // namespace visit_test
}  // namespace lockstep
