// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/parallel/ddp/bucket_assignment.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

namespace lockstep {
namespace distributed_buckets_test {

using testing::CaughtWarnings;
using testing::first_devices;
using testing::throws;
using Buckets = std::vector<std::vector<std::size_t>>;
using Sizes = std::vector<std::size_t>;

Tensor of(Dtype dtype, std::int64_t count) { return empty({count}, {.dtype = dtype}); }

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

TEST(BucketAssignment, DD17DtypesNeverMix) {
  const std::vector<Tensor> tensors{of(Dtype::f32, 100), of(Dtype::f64, 100), of(Dtype::f32, 100),
                                    of(Dtype::f64, 100)};
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {400}), (Buckets{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {kAll}), (Buckets{{0, 2}, {1, 3}}));
}

TEST(BucketAssignment, DD17OneThatIsMarkedGetsABucketOfItsOwn) {
  const std::vector<Tensor> tensors(3, of(Dtype::f32, 100));
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {kAll}, {false, true, false}),
            (Buckets{{0, 2}, {1}}));
}

TEST(BucketAssignment, DevicesNeverMix) {
  const auto devices = first_devices(2);
  const std::vector<Tensor> tensors{
      empty({1}, {.device = devices[0]}), empty({1}, {.device = devices[1]}),
      empty({1}, {.device = devices[0]}), empty({1}, {.device = devices[1]})};
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {kAll}), (Buckets{{0, 2}, {1, 3}}));
}

TEST(BucketAssignment, EachDtypeGoesThroughTheLimitsAndTheLastRepeats) {
  const std::vector<Tensor> tensors(6, of(Dtype::f32, 1));
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {4, 8}),
            (Buckets{{0}, {1, 2}, {3, 4}, {5}}));
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {0}),
            (Buckets{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(compute_bucket_assignment_by_size({}, {4}), Buckets{});
}

TEST(BucketAssignment, WithNumbersBucketsComeInTheOrderInWhichTheyAreClosed) {
  const std::vector<Tensor> tensors{of(Dtype::f64, 1), of(Dtype::f32, 1), of(Dtype::f32, 1),
                                    of(Dtype::f64, 1)};
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {8}, {}, {3, 2, 1, 0}),
            (Buckets{{3}, {2, 1}, {0}}));
  EXPECT_EQ(compute_bucket_assignment_by_size(tensors, {9}, {}, {3, 2, 1, 0}),
            (Buckets{{3, 0}, {2, 1}}));
}

TEST(BucketAssignment, ArgumentsThatDoNotFitAreErrors) {
  const std::vector<Tensor> tensors(2, of(Dtype::f32, 1));
  EXPECT_TRUE(throws<ValueError>([&] { compute_bucket_assignment_by_size(tensors, {}); },
                                 "at least one size limit"));
  EXPECT_TRUE(throws<ValueError>([&] { compute_bucket_assignment_by_size(tensors, {1}, {true}); },
                                 "1 marks", "2 tensors"));
  EXPECT_TRUE(throws<ValueError>([&] { compute_bucket_assignment_by_size(tensors, {1}, {}, {0}); },
                                 "1 indices", "2 tensors"));
}

std::vector<Parameter> large_parameters() {
  std::vector<Parameter> weights;
  for (int i = 0; i < 21; ++i) weights.emplace_back(zeros({512, 1024}));
  return weights;
}

// 21 parameters of 2 MiB, used in the order of their numbers.
struct Large {
  std::vector<Parameter> weights = large_parameters();
  Tensor forward(const Tensor& x) const {
    Tensor sum = x;
    for (const Parameter& weight : weights) sum = sum + weight.sum();
    return sum;
  }
};

DDPLoggingData after_two_steps(const DistributedDataParallelOptions& options) {
  DDPLoggingData data;
  distributed::run(first_devices(1), [&](const distributed::ProcessGroup& group) {
    DistributedDataParallel model{Large{}, group, options};
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(zeros({})).backward();
    }
    data = model.logging_data();
  });
  return data;
}

TEST(DistributedDataParallel, DD14OneBucketAtFirstThenASmallFirstOne) {
  const DDPLoggingData data = after_two_steps({});
  EXPECT_EQ(data.initial_bucket_sizes, (Sizes{44040192}));
  EXPECT_TRUE(data.has_rebuilt_buckets);
  EXPECT_EQ(data.rebuilt_bucket_sizes, (Sizes{2097152, 27262976, 14680064}));
}

TEST(DistributedDataParallel, DD15ACapThatIsGivenIsThatOfTheFirstAsWell) {
  const DDPLoggingData data = after_two_steps({.bucket_cap_mb = 25});
  EXPECT_EQ(data.initial_bucket_sizes, (Sizes{44040192}));
  EXPECT_EQ(data.rebuilt_bucket_sizes, (Sizes{27262976, 16777216}));
}

TEST(DistributedDataParallel, DD16WithUnusedParametersBucketsAreNeverRebuilt) {
  const CaughtWarnings warnings;
  const DDPLoggingData data = after_two_steps({.find_unused_parameters = true});
  EXPECT_EQ(warnings.count("every parameter got a gradient"), 1);  // in vain here
  EXPECT_EQ(data.initial_bucket_sizes, (Sizes{14680064, 27262976, 2097152}));
  EXPECT_FALSE(data.has_rebuilt_buckets);
}

TEST(DistributedDataParallel, AListOfCapsHoldsFromTheFirstIterationOn) {
  const DDPLoggingData data = after_two_steps({.bucket_cap_mb_list = {2, 30}});
  EXPECT_EQ(data.initial_bucket_sizes, (Sizes{10485760, 31457280, 2097152}));
  EXPECT_EQ(data.rebuilt_bucket_sizes, (Sizes{2097152, 31457280, 10485760}));
}

TEST(DistributedDataParallel, CapsThatCannotBeAreErrors) {
  const auto make = [](const DistributedDataParallelOptions& options) {
    return [options] { (void)detail::bucket_limits(options); };
  };
  EXPECT_TRUE(throws<ValueError>(make({.bucket_cap_mb = -1}), "at least 0, got -1"));
  EXPECT_TRUE(throws<ValueError>(
      make({.bucket_cap_mb_list = {1, std::numeric_limits<double>::quiet_NaN()}}), "got nan"));
  EXPECT_TRUE(throws<ValueError>(make({.bucket_cap_mb = 1, .bucket_cap_mb_list = {1}}),
                                 "exclude each other"));
}

}  // namespace distributed_buckets_test
}  // namespace lockstep
