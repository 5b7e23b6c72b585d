// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/release.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace release_test {

struct Link {
  explicit Link(int* count) : alive(count) { ++*alive; }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() {
    --*alive;
    release(std::move(next));
    release(std::move(other));
  }
  int* alive;
  std::shared_ptr<Link> next;
  std::shared_ptr<Link> other;
};

TEST(Release, ALongChainIsDestroyedWithoutRecursion) {
  int alive = 0;
  std::shared_ptr<Link> head;
  for (int i = 0; i < 300000; ++i) {
    auto link = std::make_shared<Link>(&alive);
    link->next = head;
    link->other = std::move(head);
    head = std::move(link);
  }
  EXPECT_EQ(alive, 300000);
  release(std::move(head));
  EXPECT_EQ(alive, 0);
  release(nullptr);
}

struct Bush {
  explicit Bush(int* count) : alive(count) { ++*alive; }
  Bush(const Bush&) = delete;
  Bush& operator=(const Bush&) = delete;
  ~Bush() {
    --*alive;
    for (auto& branch : branches) release(std::move(branch));
  }
  int* alive;
  std::vector<std::shared_ptr<Bush>> branches;
};

TEST(Release, AnyNumberOfBranchesIsDestroyed) {
  int alive = 0;
  auto head = std::make_shared<Bush>(&alive);
  for (int i = 0; i < 20; ++i) {
    head->branches.push_back(std::make_shared<Bush>(&alive));
    for (int j = 0; j < i; ++j) {
      head->branches.back()->branches.push_back(std::make_shared<Bush>(&alive));
    }
  }
  // One that is as long as the others are wide.
  std::shared_ptr<Bush> chain;
  for (int i = 0; i < 300000; ++i) {
    auto link = std::make_shared<Bush>(&alive);
    if (chain) link->branches.push_back(std::move(chain));
    chain = std::move(link);
  }
  head->branches.push_back(std::move(chain));
  EXPECT_EQ(alive, 1 + 20 + 190 + 300000);
  release(std::move(head));
  EXPECT_EQ(alive, 0);
}

TEST(Release, WhatOthersHoldStays) {
  int alive = 0;
  auto kept = std::make_shared<Link>(&alive);
  auto head = std::make_shared<Link>(&alive);
  head->next = kept;
  release(std::move(head));
  EXPECT_EQ(alive, 1);
}

}  // namespace release_test
}  // namespace lockstep::detail
