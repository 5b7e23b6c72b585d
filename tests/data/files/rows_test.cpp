// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/files/rows.hpp>

#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace rows_test {

using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::detail::row_of;
using lockstep::data::detail::select_rows;
using lockstep::data::detail::stack_rows;
using lockstep::testing::contains;
using lockstep::testing::message_of;
using lockstep::testing::values_of;

TEST(Rows, AreViewsAlsoOfViews) {
  const Tensor base = lockstep::from_values(std::vector<float>{0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor middle = row_of(base, 1);
  const Tensor last = row_of(middle, 1);
  EXPECT_EQ(last.sizes(), Shape{});
  last.mutable_data_ptr<float>()[0] = 9;
  EXPECT_EQ(values_of<float>(base), (std::vector<float>{0, 1, 2, 9, 4, 5}));
}

TEST(Rows, ASelectionOfNothingIsEmpty) {
  EXPECT_EQ(select_rows(lockstep::zeros({3, 2}), {}).sizes(), (Shape{0, 2}));
  const std::array<std::int64_t, 2> rows{2, 1};
  EXPECT_EQ(select_rows(lockstep::zeros({3, 0}), rows).sizes(), (Shape{2, 0}));
}

TEST(Rows, StackedTensorsMustBeAlike) {
  using lockstep::zeros;
  const auto stack = [](const Tensor& a, const Tensor& b) {
    stack_rows(std::array<Tensor, 2>{a, b}, "here");
  };
  EXPECT_TRUE(contains(message_of<lockstep::ShapeError>([&] { stack(zeros({2}), zeros({3})); }),
                       "here: sample 0 of the batch has shape [2], but sample 1 has [3]"));
  EXPECT_TRUE(contains(message_of<lockstep::DtypeError>(
                           [&] { stack(zeros({2}), zeros({2}, {.dtype = lockstep::Dtype::f64})); }),
                       "here: sample 0 of the batch is of f32, but sample 1 of f64"));
  EXPECT_TRUE(contains(message_of<lockstep::DeviceError>(
                           [&] { stack(zeros({2}), zeros({2}, {.device = "cpu:0"})); }),
                       "here: sample 0 of the batch is on cpu, but sample 1 on cpu:0"));
}

}  // namespace rows_test
