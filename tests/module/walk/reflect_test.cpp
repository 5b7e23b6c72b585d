// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/walk/reflect.hpp>

#include <gtest/gtest.h>

#include <any>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

// Types with linkage, and others without, as their names are printed in different ways.
namespace lockstep::detail::reflect_test {

struct Plain {
  int alpha;
  float beta_2;
  std::string Gamma;
};

template <class T>
struct Generic {
  T one;
  std::array<T, 3> two;
  std::map<std::string, T> three;
};

struct Empty {};

struct NoDefault {
  explicit(false) NoDefault(int value) : x(value) {}
  int x;
};

struct ThreeArguments {
  ThreeArguments(int a, int b, int c) : sum(a + b + c) {}
  int sum;
};

struct CArrays {
  int a[3];
  float b[2][2];
  int c;
  int d[1];
  NoDefault e;
  std::string f[2];
  ThreeArguments g;
  NoDefault h[2];
};

struct TakesAnything {
  TakesAnything() = default;
  template <class T>
  explicit(false) TakesAnything(T&& /*value*/) {}
};

// Members with constructor templates, and members that can neither be copied nor moved.
struct Greedy {
  std::any any;
  std::function<void()> function;
  std::optional<int> number;
  std::optional<std::string> text;
  std::variant<int, float> variant;
  std::string_view view;
  TakesAnything anything;
  std::atomic<int> atomic;
  std::mutex mutex;
  std::unique_ptr<int> pointer;
};

struct EmptyBase {};
struct DerivedFromEmpty : EmptyBase {
  int own;
  float two;
};

struct BaseWithMember {
  int member;
};
struct DerivedFromMember : BaseWithMember {
  int own;
};

struct WithReference {
  int a;
  int& reference;
};

struct Huge {
  double values[4096];
};

struct SixtyFive {
  std::array<int, 1> a0[33];
  Plain a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
      a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39,
      a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58,
      a59, a60, a61, a62, a63, a64;
};

struct SixtyFour {
  int a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20,
      a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39,
      a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58,
      a59, a60, a61, a62, last;
};

union Union {
  int a;
  float b;
};

class PrivateMember {
 public:
  int value() const { return value_; }

 private:
  int value_ = 0;
};

namespace {
struct Anonymous {
  std::vector<int> vec;
  std::shared_ptr<Plain> shared;
};
}  // namespace

template <class T>
constexpr Reflection reflection = members_of<T>.reflection;

TEST(Reflect, CountsMembersOfPlainAggregates) {
  static_assert(member_count<Plain> == 3);
  static_assert(member_count<const Plain> == 3);
  static_assert(member_count<Generic<NoDefault>> == 3);
  static_assert(member_count<Empty> == 0 && is_reflectable<Empty>);
  static_assert(member_count<Anonymous> == 2);
  static_assert(member_count<SixtyFour> == 64);
}

TEST(Reflect, CountsMembersWithGreedyConstructorsAndWithoutCopies) {
  static_assert(member_count<Greedy> == 10);
  static_assert(member_name<Greedy, 0> == "any");
  static_assert(member_name<Greedy, 9> == "pointer");
}

TEST(Reflect, ACArrayIsOneMember) {
  static_assert(member_count<CArrays> == 8);
  static_assert(member_name<CArrays, 0> == "a");
  static_assert(member_name<CArrays, 1> == "b");
  static_assert(member_name<CArrays, 7> == "h");
  struct Three {
    int values[3];
  } three{{1, 2, 3}};
  static_assert(std::is_same_v<decltype(tie_members(three)), std::tuple<int(&)[3]>>);
  EXPECT_EQ(std::get<0>(tie_members(three))[2], 3);
}

TEST(Reflect, AnEmptyBaseIsNoMember) {
  static_assert(member_count<DerivedFromEmpty> == 2);
  static_assert(member_name<DerivedFromEmpty, 0> == "own");
}

TEST(Reflect, SaysWhyATypeIsRefused) {
  static_assert(reflection<DerivedFromMember> == Reflection::base_with_members);
  static_assert(reflection<WithReference> == Reflection::not_countable);
  static_assert(reflection<Huge> == Reflection::too_many);
  static_assert(reflection<SixtyFive> == Reflection::too_many);
  static_assert(reflection<PrivateMember> == Reflection::no_aggregate);
  static_assert(reflection<Union> == Reflection::no_aggregate);
  static_assert(reflection<int> == Reflection::no_aggregate);
  static_assert(reflection<std::string> == Reflection::no_aggregate);
}

TEST(Reflect, NamesMembers) {
  static_assert(member_name<Plain, 0> == "alpha");
  static_assert(member_name<const Plain, 1> == "beta_2");
  static_assert(member_name<Plain, 2> == "Gamma");
  static_assert(member_name<Generic<Plain>, 2> == "three");
  static_assert(member_name<Anonymous, 0> == "vec");
  static_assert(member_name<Anonymous, 1> == "shared");
  static_assert(member_name<SixtyFour, 63> == "last");
  struct Local {
    int inside;
    std::string text;
  };
  static_assert(member_name<Local, 0> == "inside");
  static_assert(member_name<Local, 1> == "text");
}

// What the constant evaluator finds is also what the program has.
TEST(Reflect, NamesMembersAtRunTime) {
  const std::string_view names[] = {member_name<Plain, 0>, member_name<Plain, 1>};
  EXPECT_EQ(names[0], "alpha");
  EXPECT_EQ(names[1], "beta_2");
}

TEST(Reflect, TiesMembersAsReferences) {
  Plain object{1, 2, "three"};
  static_assert(
      std::is_same_v<decltype(tie_members(object)), std::tuple<int&, float&, std::string&>>);
  std::get<0>(tie_members(object)) = 4;
  EXPECT_EQ(object.alpha, 4);
  const Plain& constant = object;
  static_assert(std::is_same_v<decltype(tie_members(constant)),
                               std::tuple<const int&, const float&, const std::string&>>);
  EXPECT_EQ(&std::get<2>(tie_members(constant)), &object.Gamma);
}

}  // namespace lockstep::detail::reflect_test
