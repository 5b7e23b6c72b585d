// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/mailbox.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/distributed/reduce_on_gpu.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void Mailbox::send(int rank, const Message& message, const void* data, Done done,
                                   const Stream* stream) {
  post({rank, message.peer, true, message, const_cast<void*>(data), std::move(done),
        side_of(stream)});
}

LOCKSTEP_INLINE void Mailbox::receive(int rank, const Message& message, void* data, Done done,
                                      const Stream* stream) {
  post({message.peer, rank, false, message, data, std::move(done), side_of(stream)});
}

LOCKSTEP_INLINE void Mailbox::leave(int rank, const std::string& reason) {
  std::vector<Posted> failed;
  {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = reason;
    const auto waits = [&](const Posted& posted) {
      return (posted.sends ? posted.to : posted.from) == rank;
    };
    for (Posted& posted : posted_) {
      if (waits(posted)) failed.push_back(std::move(posted));
    }
    std::erase_if(posted_, [](const Posted& posted) { return !posted.done; });
  }
  for (const Posted& posted : failed) posted.done(gone(reason));
}

LOCKSTEP_INLINE std::optional<Mailbox::GpuSide> Mailbox::side_of(const Stream* stream) {
  if (!stream) return std::nullopt;
  return GpuSide{*stream, stream->record_event()};
}

LOCKSTEP_INLINE std::exception_ptr Mailbox::gone(const std::string& reason) {
  return std::make_exception_ptr(RankGone("send or recv: " + reason));
}

LOCKSTEP_INLINE void Mailbox::post(Posted mine) {
  const int peer = mine.sends ? mine.to : mine.from;
  std::string reason;
  Posted other{};
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& posted) {
      return posted.from == mine.from && posted.to == mine.to && posted.sends != mine.sends &&
             posted.message.tag == mine.message.tag;
    });
    if (fits != posted_.end()) {
      other = std::move(*fits);
      posted_.erase(fits);
    } else if (gone_[static_cast<std::size_t>(peer)].empty()) {
      posted_.push_back(std::move(mine));
      return;
    } else {
      reason = gone_[static_cast<std::size_t>(peer)];
    }
  }
  if (!other.done) return mine.done(gone(reason));
  deliver(mine.sends ? mine : other, mine.sends ? other : mine);
}

LOCKSTEP_INLINE void Mailbox::deliver(const Posted& sent, const Posted& received) {
  const Message& out = sent.message;
  const Message& in = received.message;
  const bool placed = sent.gpu.has_value() == received.gpu.has_value();
  std::string text;
  if (out.dtype == in.dtype && out.count == in.count && placed) {
    try {
      if (sent.gpu) {
        copy_on_gpu(sent, received);
      } else if (out.bytes() > 0) {
        std::memcpy(received.data, sent.data, out.bytes());
      }
      sent.done(nullptr);
      received.done(nullptr);
      return;
    } catch (const std::exception& error) {
      text = lockstep::detail::str("a message from rank ", sent.from, " to rank ", received.to,
                                   ": ", error.what());
    }
    return fail<DeviceError>(sent, received, text);
  }
  const auto where = [placed](const Posted& posted) {
    return placed ? "" : posted.gpu ? " on a GPU" : " in host memory";
  };
  text = lockstep::detail::str("messages do not match: rank ", sent.from, " sent ", out.count,
                               " x ", out.dtype, where(sent), ", but rank ", received.to,
                               " receives ", in.count, " x ", in.dtype, where(received));
  fail<ValueError>(sent, received, text);
}

LOCKSTEP_INLINE void Mailbox::copy_on_gpu(const Posted& sent, const Posted& received) {
  const Stream& from = sent.gpu->stream;
  const Stream& to = received.gpu->stream;
  to.wait_event(sent.gpu->ready);
  to.wait_event(received.gpu->ready);
  copy_between({to.device(), received.data}, {from.device(), sent.data}, sent.message.bytes(), to);
  from.wait_event(to.record_event());
}

}  // namespace lockstep::distributed::detail
