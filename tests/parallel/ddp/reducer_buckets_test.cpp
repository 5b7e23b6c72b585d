// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/run.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/parallel/ddp/reducer_buckets.hpp>
#include <lockstep/parallel/ddp/reducer_usage.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace reducer_buckets_test {

using detail::ReducerBuckets;
using detail::ReducerUsage;
using distributed::ProcessGroup;

// Two parameters, the buckets of which hold one each: the first bucket is that of the last one.
struct Two {
  explicit Two(const ProcessGroup& group)
      : options{.device = group.device()},
        buckets({{"a", Parameter(ones({2}, options))}, {"b", Parameter(ones({2}, options))}}, {1}) {
    buckets.prepare();
  }

  void take(std::size_t i) {
    buckets.parameter(i).set_grad(full({2}, 3, {.device = options.device}));
    buckets.take_gradient(i);
    --buckets.bucket_of(i)->pending;
  }
  bool has_gradient(std::size_t i) const { return buckets.parameter(i).grad().defined(); }

  TensorOptions options;
  ReducerBuckets buckets;
};

TEST(ReducerBuckets, AGradientIsTakenAwayWhileItIsReduced) {
  distributed::run(testing::first_devices(2), [](const ProcessGroup& group) {
    Two two(group);
    for (const std::size_t i : {0U, 1U}) two.take(i);
    for (ReducerBuckets::Bucket& bucket : two.buckets.buckets()) {
      EXPECT_TRUE(two.has_gradient(bucket.members[0]));
      two.buckets.launch(bucket, group, {});
      EXPECT_FALSE(two.has_gradient(bucket.members[0]));
    }
    two.buckets.wait_for_all(1);
    two.buckets.give_back();
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_EQ(two.buckets.parameter(i).grad().to_vector<float>(), std::vector<float>(2, 3));
    }
  });
}

// What may be written to still is given up, whether it has been launched or not.
TEST(ReducerBuckets, AfterAFailureFullBucketsGiveTheirGradientsUp) {
  distributed::run(testing::first_devices(1), [](const ProcessGroup& group) {
    Two two(group);
    two.take(0);
    two.buckets.parameter(1).set_grad(ones({2}, {.device = group.device()}));
    two.buckets.drop_full();
    EXPECT_FALSE(two.has_gradient(0));
    EXPECT_TRUE(two.has_gradient(1));
    two.take(1);
    two.buckets.launch(*two.buckets.bucket_of(1), group, {});
    two.buckets.drop_full();
    two.buckets.give_back();
    EXPECT_FALSE(two.has_gradient(1));
  });
}

TEST(ReducerUsage, TheOrderIsThatOfThePassAlone) {
  ReducerUsage usage(3);
  for (int pass = 0; pass < 3; ++pass) {
    usage.begin_pass();
    usage.mark(2, ReducerUsage::State::ready);
    usage.mark(1, ReducerUsage::State::unused);
    usage.mark(0, ReducerUsage::State::ready);
    EXPECT_EQ(usage.order(), (std::vector<std::int64_t>{2, 0, 1}));
  }
}

}  // namespace reducer_buckets_test
}  // namespace lockstep
