// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/store/prefix_store.hpp>
#include <lockstep/distributed/store/tcp_store.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/files.hpp"
#include "support/expect_error.hpp"
#include "support/forked.hpp"

namespace lockstep::distributed {
namespace store_test {

using std::chrono::milliseconds;
using testing::TempDirectory;
using testing::throws;

constexpr milliseconds kAtOnce{0};
constexpr milliseconds kSoon{20};

// `handle` gives the store as each rank has it: its own, where there is such a thing.
class Stores : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Store> handle() {
    const std::string kind = GetParam();
    if (kind == "Hash") return hash_;
    if (kind == "Prefix") return std::make_shared<PrefixStore>("part", hash_);
    if (kind == "File") return std::make_shared<FileStore>(folder_ / "store");
    const bool first = port_ == 0;
    auto store =
        std::make_shared<TCPStore>("localhost", TCPStoreOptions{.port = port_, .is_server = first});
    if (first) server_ = store;
    port_ = store->port();
    return store;
  }

 private:
  TempDirectory folder_;
  std::shared_ptr<HashStore> hash_ = std::make_shared<HashStore>();
  std::shared_ptr<Store> server_;
  std::uint16_t port_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Each, Stores, ::testing::Values("Hash", "Prefix", "File", "TCP"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Stores, GetReturnsWhatAnotherHandleSet) {
  const auto a = handle();
  const auto b = handle();
  a->set("key", "first");
  EXPECT_EQ(b->get("key"), "first");
  b->set("key", "second");
  EXPECT_EQ(a->get("key", kAtOnce), "second");
}

TEST_P(Stores, ValuesAreAnyBytes) {
  const auto a = handle();
  const auto b = handle();
  std::string bytes(1000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  a->set("", bytes);
  a->set(std::string("\0x", 2), "");
  EXPECT_EQ(b->get(""), bytes);
  EXPECT_EQ(b->get(std::string("\0x", 2)), "");
  const std::string largest(Store::kMaxValue, 'v');
  a->set(std::string(4000, 'k'), largest);
  EXPECT_TRUE(b->get(std::string(4000, 'k')) == largest);
}

TEST_P(Stores, TooLongKeysAndValuesAreRefused) {
  const auto store = handle();
  const std::string key(Store::kMaxKey + 1, 'k');
  EXPECT_TRUE(throws<ValueError>([&] { store->set(key, ""); }, "8193", "8192"));
  EXPECT_TRUE(throws<ValueError>([&] { store->get(key); }, "8193"));
  EXPECT_TRUE(throws<ValueError>([&] { store->set("big", std::string(Store::kMaxValue + 1, 'v')); },
                                 "'big'", "8388609"));
  EXPECT_FALSE(store->check({{"big"}}));
}

TEST_P(Stores, GetWaitsForTheValue) {
  const auto a = handle();
  const auto b = handle();
  auto value = std::async(std::launch::async, [&] { return b->get("late"); });
  auto both = std::async(std::launch::async, [&] { b->wait({{"late", "later"}}); });
  EXPECT_EQ(value.wait_for(kSoon), std::future_status::timeout);
  a->set("late", "here");
  EXPECT_EQ(value.get(), "here");
  EXPECT_EQ(both.wait_for(kSoon), std::future_status::timeout);
  a->set("later", "too");
  both.get();
}

// The same handle: one that waits must not keep the other thread from its call.
TEST_P(Stores, AThreadSetsWhatAnotherOfTheSameHandleWaitsFor) {
  const auto store = handle();
  auto value = std::async(std::launch::async, [&] { return store->get("late"); });
  EXPECT_EQ(value.wait_for(kSoon), std::future_status::timeout);
  store->set("late", "here");
  EXPECT_EQ(value.get(), "here");
}

TEST_P(Stores, ALateKeyIsNamedWithTheTimeLimit) {
  const auto store = handle();
  store->set("there", "");
  EXPECT_TRUE(
      throws<StoreError>([&] { store->get("missing", kAtOnce); }, "missing'", "0 s", "Store"));
  EXPECT_TRUE(throws<StoreError>(
      [&] {
        store->wait({{"there", "missing"}}, kSoon);
      },
      "missing'", "0.02 s"));
  EXPECT_TRUE(throws<StoreError>(
      [&] {
        store->wait({{"a", "b", "c", "d", "e"}}, kAtOnce);
      },
      "a', '", "c' and 2 more"));
  store->set_timeout(milliseconds(30));
  EXPECT_TRUE(throws<StoreError>([&] { store->get("missing"); }, "missing'", "0.03 s"));
  EXPECT_TRUE(throws<ValueError>([&] { store->get("there", milliseconds(-1)); }, "-1"));
  EXPECT_THROW(store->get("there", milliseconds::min()), ValueError);
  EXPECT_EQ(store->get("there"), "");  // and it can still be used
}

TEST_P(Stores, AddCounts) {
  const auto a = handle();
  const auto b = handle();
  EXPECT_EQ(a->add("n", 3), 3);
  EXPECT_EQ(b->add("n", -5), -2);
  EXPECT_EQ(a->get("n"), "-2");
  a->set("n", "40");
  EXPECT_EQ(b->add("n", 2), 42);
  a->set("text", "4x");
  EXPECT_TRUE(throws<ValueError>([&] { b->add("text", 1); }, "text'", "'4x'"));
  EXPECT_EQ(a->add("most", std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(throws<ValueError>([&] { b->add("most", 1); }, "most'", "64 bits"));
  EXPECT_EQ(a->get("most"), "9223372036854775807");
}

TEST_P(Stores, AddGivesNoSumTwice) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  std::vector<std::future<std::vector<std::int64_t>>> counts;
  for (int t = 0; t < kThreads; ++t) {
    counts.push_back(std::async(std::launch::async, [store = handle()] {
      std::vector<std::int64_t> mine;
      for (int i = 0; i < kEach; ++i) mine.push_back(store->add("n", 1));
      return mine;
    }));
  }
  std::vector<std::int64_t> all;
  for (auto& count : counts) {
    const auto part = count.get();
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i) + 1);
  EXPECT_EQ(all.size(), kThreads * kEach);
}

TEST_P(Stores, AddWakesWhoWaitsForTheKey) {
  const auto a = handle();
  const auto b = handle();
  auto value = std::async(std::launch::async, [&] { return b->get("n"); });
  EXPECT_EQ(value.wait_for(kSoon), std::future_status::timeout);
  a->add("n", 1);
  EXPECT_EQ(value.get(), "1");
}

TEST_P(Stores, KeysAreDeletedAndCounted) {
  const auto a = handle();
  const auto b = handle();
  EXPECT_EQ(b->num_keys(), 0);
  a->set("x", "1");
  a->set("y", "2");
  a->set("x", "3");
  EXPECT_EQ(b->num_keys(), 2);
  EXPECT_TRUE(b->check({{"x", "y"}}));
  EXPECT_TRUE(b->check({}));
  EXPECT_TRUE(b->delete_key("x"));
  EXPECT_FALSE(a->delete_key("x"));
  EXPECT_FALSE(a->check({{"x", "y"}}));
  EXPECT_TRUE(a->check({{"y"}}));
  EXPECT_EQ(a->num_keys(), 1);
  EXPECT_TRUE(throws<StoreError>([&] { a->get("x", kAtOnce); }, "x'"));
}

// Which has the same connection, or the same lock: an Error, and nothing is taken from the parent.
TEST_P(Stores, AForkedChildIsRefused) {
  const auto store = handle();
  store->set("key", "value");
  EXPECT_TRUE(testing::refused_when_forked([&] { store->get("key"); }));
  EXPECT_EQ(store->get("key"), "value");
}

TEST(PrefixStore, KeepsUsersOfOneStoreApart) {
  const auto whole = std::make_shared<HashStore>(milliseconds(1234));
  PrefixStore a("a", whole);
  PrefixStore b("b", whole);
  EXPECT_EQ(a.timeout(), milliseconds(1234));
  a.set("key", "1");
  EXPECT_FALSE(b.check({{"key"}}));
  EXPECT_EQ(whole->get("a/key"), "1");
  EXPECT_EQ(a.name(), "HashStore below 'a'");
  EXPECT_TRUE(throws<StoreError>([&] { b.get("key", kAtOnce); }, "HashStore below 'b'", "'key'"));
  a.set_timeout(milliseconds(5));
  EXPECT_TRUE(throws<StoreError>([&] { a.get("other"); }, "0.005 s"));
  EXPECT_TRUE(throws<ValueError>([] { PrefixStore("a", nullptr); }, "no store"));
}

// Keeps the time limits that its calls come with.
class LimitsStore final : public Store {
 public:
  std::string name() const override { return "LimitsStore"; }
  std::vector<milliseconds> take() { return std::exchange(limits_, {}); }

 private:
  std::optional<detail::StoreAnswer> answer(const detail::StoreCall&,
                                            const detail::Deadline& deadline) override {
    limits_.push_back(deadline.timeout());
    return detail::StoreAnswer();
  }

  std::vector<milliseconds> limits_;
};

TEST(PrefixStore, EveryCallHasItsOwnTimeLimit) {
  const auto whole = std::make_shared<LimitsStore>();
  const auto a = std::make_shared<PrefixStore>("a", whole);
  PrefixStore b("b", whole);
  PrefixStore below("c", a);
  const auto limits_of = [&](Store& store) {
    store.set("key", "");
    (void)store.get("key");
    (void)store.add("key", 1);
    store.wait({{"key"}});
    (void)store.check({{"key"}});
    (void)store.delete_key("key");
    (void)store.num_keys();
    return whole->take();
  };
  const auto all = [](milliseconds limit) { return std::vector<milliseconds>(7, limit); };
  EXPECT_EQ(limits_of(b), all(Store::kDefaultTimeout));
  a->set_timeout(milliseconds(7));
  b.set_timeout(milliseconds(8));
  EXPECT_EQ(limits_of(*a), all(milliseconds(7)));
  EXPECT_EQ(limits_of(b), all(milliseconds(8)));
  EXPECT_EQ(limits_of(below), all(Store::kDefaultTimeout));
  EXPECT_EQ(limits_of(*whole), all(Store::kDefaultTimeout));
  whole->set_timeout(milliseconds(9));
  EXPECT_EQ(limits_of(b), all(milliseconds(8)));
  EXPECT_EQ(limits_of(*whole), all(milliseconds(9)));
}

TEST(PrefixStore, AKeyIsTooLongTogetherWithThePrefix) {
  PrefixStore store("prefix", std::make_shared<HashStore>());
  store.set(std::string(Store::kMaxKey - 7, 'k'), "");
  EXPECT_TRUE(throws<ValueError>([&] { store.set(std::string(Store::kMaxKey - 6, 'k'), ""); },
                                 "8193", "8192"));
}

TEST(Deadline, RefusesNegativeLimitsAndTakesTheLongest) {
  EXPECT_TRUE(throws<ValueError>([] { detail::Deadline(milliseconds(-3)); }, "-3 ms"));
  const detail::Deadline longest(milliseconds::max());
  EXPECT_FALSE(longest.passed());
  EXPECT_GT(longest.poll_timeout(), 0);
  const detail::Deadline none(kAtOnce);
  EXPECT_TRUE(none.passed());
  EXPECT_EQ(none.poll_timeout(), 0);
}

}  // namespace store_test
}  // namespace lockstep::distributed
