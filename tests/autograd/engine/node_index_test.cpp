// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine/node_index.hpp>

#include <gtest/gtest.h>

#include <cstddef>

namespace lockstep::detail {
namespace node_index_test {

// Only addresses are looked at: these are as far apart as nodes may be, and as close.
const Node* node(std::size_t number, std::size_t distance) {
  return reinterpret_cast<const Node*>(0x10000 + number * distance);
}

TEST(NodeIndex, FindsWhatWasAddedAndNothingElse) {
  for (const std::size_t distance : {std::size_t{16}, std::size_t{4096}, std::size_t{1} << 32U}) {
    NodeIndex index;
    EXPECT_EQ(index.find(node(0, distance)), NodeIndex::kNone);
    for (std::size_t size = 1; size <= 1000; ++size) {
      index.add(node(size, distance), 3 * size);
      ASSERT_EQ(index.find(node(size, distance)), 3 * size);
      ASSERT_EQ(index.find(node(size + 1, distance)), NodeIndex::kNone);
    }
    for (std::size_t number = 1; number <= 1000; ++number) {
      ASSERT_EQ(index.find(node(number, distance)), 3 * number);
    }
  }
}

}  // namespace node_index_test
}  // namespace lockstep::detail
