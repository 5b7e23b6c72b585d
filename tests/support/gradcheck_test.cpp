// SPDX-License-Identifier: Apache-2.0
#include "support/gradcheck.hpp"

#include <lockstep/autograd/function.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep::testing {
namespace gradcheck_test {

constexpr TensorOptions kLeaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};

// A gradient that is wrong by a factor, a second one that is missing.
struct Wrong {
  static constexpr const char* name = "wrong";
  double factor;
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return input * input;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return grad * saved(x).detach() * factor;
  }
};

// A gradient that is wrong where it is recorded.
struct WrongIfRecorded {
  static constexpr const char* name = "wrong";
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return input * input;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return grad * saved(x) * (is_grad_enabled() ? 3 : 2);
  }
};

// A gradient of the first factor that is there only if the second one's is wanted as well.
struct WrongIfAlone {
  static constexpr const char* name = "wrong";
  Saved a = {};
  Saved b = {};
  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    return left * right;
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    return {saved.needs(1) ? grad * saved(b) : Tensor(), grad * saved(a)};
  }
};

TEST(Gradcheck, AcceptsRightGradientsAndRefusesWrongOnes) {
  const std::vector<Tensor> x = {rand({3}, kLeaf, 1, 2)};
  EXPECT_TRUE(gradcheck([](const Tensor& a) { return apply(Wrong{2}, a); }, x));
  const auto result = gradcheck([](const Tensor& a) { return apply(Wrong{2.001}, a); }, x);
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("input 0 of shape [3], element "), std::string::npos)
      << result.message();
}

TEST(Gradcheck, SecondDerivativesAreCheckedApart) {
  const std::vector<Tensor> x = {rand({3}, kLeaf, 1, 2)};
  EXPECT_FALSE(gradgradcheck([](const Tensor& a) { return apply(Wrong{2}, a); }, x));
  EXPECT_TRUE(gradgradcheck([](const Tensor& a) { return a * a; }, x));
}

TEST(Gradcheck, AGradientIsTheSameRecordedOrNot) {
  const auto wrong = [](const Tensor& a) { return apply(WrongIfRecorded{}, a); };
  const std::vector<Tensor> x = {rand({3}, kLeaf, 1, 2)};
  EXPECT_TRUE(gradcheck(wrong, x));
  const auto result = gradgradcheck(wrong, x);
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("if it is recorded"), std::string::npos);
}

TEST(Gradcheck, AGradientIsTheSameAlone) {
  const auto wrong = [](const Tensor& a, const Tensor& b) { return apply(WrongIfAlone{}, a, b); };
  const auto result = gradcheck(wrong, {rand({2}, kLeaf, 1, 2), rand({2}, kLeaf, 1, 2)});
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("where no other is wanted"), std::string::npos);
}

TEST(Gradcheck, AnInputThatIsForgottenIsFound) {
  const std::vector<Tensor> x = {rand({2}, kLeaf, 1, 2), rand({2}, kLeaf, 1, 2)};
  EXPECT_FALSE(gradcheck([](const Tensor& a, const Tensor& b) { return a * b.detach(); }, x));
}

TEST(Gradcheck, SaysWhatItCannotCheck) {
  const auto same = [](const Tensor& a) { return a * 1; };
  EXPECT_FALSE(gradcheck(same, {ones({2})}));
  EXPECT_FALSE(gradcheck(same, {ones({2}, {.requires_grad = true})}));
  EXPECT_FALSE(gradcheck([](const Tensor& a) { return a.detach(); }, {ones({2}, kLeaf)}));
}

}  // namespace gradcheck_test
}  // namespace lockstep::testing
