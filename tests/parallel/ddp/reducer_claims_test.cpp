// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/parameter.hpp>
#include <lockstep/module/parameters.hpp>
#include <lockstep/parallel/ddp/reducer_claims.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/allocation_faults.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <vector>

namespace lockstep {
namespace reducer_claims_test {

// The parameters may be claimed once there is memory again.
TEST(ReducerClaims, WithoutMemoryNothingIsClaimed) {
  const std::vector<NamedParameter> parameters{
      {"a", Parameter(zeros({1}))}, {"b", Parameter(zeros({1}))}, {"c", Parameter(zeros({1}))}};
  bool failed = true;
  std::uint64_t n = 0;
  for (; failed; ++n) {
    testing::fail_allocation(n);
    try {
      const detail::ReducerClaims claims(parameters);
    } catch (const std::bad_alloc&) {
    }
    failed = testing::end_allocation_faults();
    EXPECT_NO_THROW(detail::ReducerClaims{parameters}) << n;
  }
  EXPECT_GT(n, 1U);
}

}  // namespace reducer_claims_test
}  // namespace lockstep
