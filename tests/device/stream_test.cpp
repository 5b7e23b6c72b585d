// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/stream.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace lockstep {
namespace stream_test {

class FakeEvent final : public detail::EventState {
 public:
  bool query() const override { return happened; }
  void synchronize() const override { ++synchronized; }
  void wait_for_end() const override { synchronize(); }
  bool precedes_new_work_of(const detail::StreamState&) const override { return happened; }
  bool happened = false;
  mutable int synchronized = 0;
};

// Notes what it is told.
class FakeStream final : public detail::StreamState {
 public:
  using StreamState::StreamState;
  bool idle() const override { return is_idle; }
  detail::EventPtr record() override { return recorded; }
  void wait(const detail::EventPtr& event) override { waits.push_back(event); }
  void synchronize() override { ++synchronized; }
  bool is_idle = true;
  std::shared_ptr<FakeEvent> recorded = std::make_shared<FakeEvent>();
  std::vector<detail::EventPtr> waits;
  int synchronized = 0;
};

TEST(Event, WithoutAStreamHasAlwaysHappened) {
  const Event event;
  EXPECT_TRUE(event.query());
  EXPECT_NO_THROW(event.synchronize());
  EXPECT_EQ(event.state(), nullptr);
}

TEST(Event, NamesOnePointInAllItsCopies) {
  const auto state = std::make_shared<FakeEvent>();
  const Event event(state);
  const Event copy = event;
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(copy.query());
  state->happened = true;
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(copy.query());
  copy.synchronize();
  EXPECT_EQ(state->synchronized, 1);
}

TEST(Stream, IsAHandle) {
  FakeStream a(Device("cpu:1"));
  FakeStream b(Device("cpu:1"));
  EXPECT_EQ(Stream(a), Stream(a));
  EXPECT_FALSE(Stream(a) == Stream(b));
  EXPECT_EQ(Stream(a).device(), Device("cpu:1"));
  EXPECT_EQ(&Stream(a).state(), &a);
  Stream(a).synchronize();
  EXPECT_EQ(a.synchronized, 1);
  a.is_idle = false;
  EXPECT_FALSE(Stream(a).query());
}

TEST(Stream, WaitsForTheOtherStreamsPresentWork) {
  FakeStream a(Device("cpu:1"));
  FakeStream b(Device("cpu:2"));
  b.is_idle = false;
  Stream(a).wait_stream(Stream(b));
  EXPECT_EQ(a.waits, std::vector<detail::EventPtr>{b.recorded});
  EXPECT_TRUE(b.waits.empty());
  EXPECT_EQ(b.synchronized, 0);  // the caller is not blocked
}

TEST(Stream, WaitsForNothingWhereThereIsNothingToOrder) {
  FakeStream a(Device("cpu:1"));
  FakeStream b(Device("cpu:2"));
  Stream(a).wait_stream(Stream(b));
  a.is_idle = false;
  Stream(a).wait_stream(Stream(a));
  Stream(a).wait_event(Event());
  const auto past = std::make_shared<FakeEvent>();
  past->happened = true;
  Stream(a).wait_event(Event(past));
  EXPECT_TRUE(a.waits.empty());
}

TEST(Stream, WaitsForAnEvent) {
  FakeStream a(Device("cpu:1"));
  const auto event = std::make_shared<FakeEvent>();
  Stream(a).wait_event(Event(event));
  EXPECT_EQ(a.waits, std::vector<detail::EventPtr>{event});
}

TEST(Stream, RecordsAnEventOnlyWhereWorkIsUnfinished) {
  FakeStream a(Device("cpu:1"));
  EXPECT_EQ(Stream(a).record_event().state(), nullptr);
  a.is_idle = false;
  EXPECT_EQ(Stream(a).record_event().state(), a.recorded);
}

}  // namespace stream_test
}  // namespace lockstep
