// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket_frame.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/tcp_store_server.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::distributed {

struct TCPStoreOptions {
  // What MASTER_PORT says. Where the server is, 0 lets the system choose one.
  std::uint16_t port = 29500;
  // One process, the one on the host that all others name, keeps the values for all.
  bool is_server = false;
  // To connect, and of each call.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
};

// A store for processes on any machines: one of them keeps the values, in a thread of its own, the
// others ask it by TCP.
//
// A client may start before the server. The server's process must not end before the others are
// done with the store: their calls are errors then. The port is open to whoever reaches it, so it
// is for a network in which one trusts.
//
// **Torch counterpart.** torch.distributed.TCPStore.
// **Threads and exceptions.** As Store; each call that waits has a connection of its own. A server
// that cannot be reached is a NetworkError. One that does not answer a call is given five seconds
// more than the call's time limit, which is for what it waits for.
// **Example.**
//
//     TCPStore store(master_addr, {.port = 29500, .is_server = rank == 0});
//     if (rank == 0) store.set("seed", "42");
//     const std::string seed = store.get("seed");
class TCPStore final : public Store {
 public:
  explicit TCPStore(std::string host, const TCPStoreOptions& options = {})
      : Store(options.timeout), host_(std::move(host)), port_(options.port) {
    lockstep::check<ValueError>(!host_.empty(), "TCPStore: the host's name is empty");
    lockstep::check<ValueError>(options.is_server || port_ != 0,
                                "TCPStore: a client must be told the port");
    if (options.is_server) {
      server_ = std::make_unique<detail::TCPStoreServer>(options.port);
      port_ = server_->port();
    }
    const detail::Deadline deadline(options.timeout);
    keep(connect(deadline, detail::Dial::until_deadline));
  }

  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }

  std::string name() const override { return "TCPStore at " + detail::endpoint(host_, port_); }

 private:
  using Request = detail::StoreRequest;

  void do_set(const std::string& key, const std::string& value,
              const detail::Deadline& deadline) override {
    ask(detail::FrameWriter(Request::set).text(key).text(value), deadline);
  }
  std::string do_get(const std::string& key, const detail::Deadline& deadline) override {
    return detail::FrameReader(ask(with_keys(Request::get, {&key, 1}), deadline, {&key, 1})).text();
  }
  std::int64_t do_add(const std::string& key, std::int64_t amount,
                      const detail::Deadline& deadline) override {
    return number(ask(detail::FrameWriter(Request::add).text(key).number(amount), deadline));
  }
  void do_wait(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    ask(with_keys(Request::wait, keys), deadline, keys);
  }
  bool do_check(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    return number(ask(with_keys(Request::check, keys), deadline)) != 0;
  }
  bool do_delete(const std::string& key, const detail::Deadline& deadline) override {
    return number(ask(detail::FrameWriter(Request::erase).text(key), deadline)) != 0;
  }
  std::int64_t do_num_keys(const detail::Deadline& deadline) override {
    return number(ask(detail::FrameWriter(Request::count), deadline));
  }

  static detail::FrameWriter with_keys(Request request, std::span<const std::string> keys) {
    detail::FrameWriter frame(request);
    frame.number(static_cast<std::uint32_t>(keys.size()));
    for (const std::string& key : keys) frame.text(key);
    return frame;
  }
  static std::int64_t number(const std::string& reply) {
    return detail::FrameReader(reply).number<std::int64_t>();
  }

  // Sends a request and returns what its reply says after its state. One that waits for keys is
  // called off at the deadline.
  std::string ask(detail::FrameWriter request, const detail::Deadline& deadline,
                  std::span<const std::string> awaited = {}) {
    const std::string bytes = request.take();
    lockstep::check<ValueError>(bytes.size() <= detail::kMaxStoreFrame, name(),
                                ": too many keys at once: ", bytes.size(), " bytes");
    detail::Descriptor connection = take(deadline);
    std::string reply = converse(connection, bytes, deadline, !awaited.empty());
    keep(std::move(connection));
    const auto state = static_cast<detail::StoreReply>(reply[0]);
    reply.erase(0, 1);
    if (state == detail::StoreReply::late) fail_late(awaited, deadline);
    if (state != detail::StoreReply::done) throw ValueError(detail::FrameReader(reply).text());
    return reply;
  }

  // A connection on which anything goes wrong is of no more use: a late reply must not be taken for
  // that to the next request.
  std::string converse(const detail::Descriptor& connection, const std::string& request,
                       const detail::Deadline& deadline, bool waits) const {
    int error = detail::send_all(connection, request, answer_by(deadline));
    if (error == 0 && waits && !detail::await(connection, POLLIN, deadline)) {
      error = detail::send_all(connection, detail::FrameWriter(Request::cancel).take(),
                               answer_by(deadline));
    }
    std::string reply;
    if (error == 0) {
      error = detail::receive_frame(connection, reply, detail::kMaxStoreFrame, answer_by(deadline));
    }
    if (error == 0 && reply.empty()) error = EPROTO;
    lockstep::check<StoreError>(
        error == 0, name(),
        error == ETIMEDOUT
            ? " does not answer"
            : ": the connection was lost, as when the process that has the server ends",
        ": ", std::strerror(error));
    return reply;
  }

  // The time limit of a call is for what it waits for; the server has at least this to answer.
  static detail::Deadline answer_by(const detail::Deadline& deadline) {
    constexpr std::chrono::milliseconds kLeast{5000};
    return detail::Deadline(std::max(kLeast, std::chrono::milliseconds(deadline.poll_timeout())));
  }

  detail::Descriptor connect(const detail::Deadline& deadline, detail::Dial dial) const {
    // The server in the same process is reached whatever the host is called.
    detail::Descriptor connection =
        detail::connect_to(server_ ? "localhost" : host_, port_, deadline, dial);
    converse(connection, detail::FrameWriter(Request::hello).text(detail::kStoreGreeting).take(),
             deadline, false);
    return connection;
  }

  // An idle connection, or one more.
  detail::Descriptor take(const detail::Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        detail::Descriptor connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return connect(answer_by(deadline), detail::Dial::once);
  }
  void keep(detail::Descriptor connection) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

  const std::string host_;
  std::uint16_t port_;
  std::unique_ptr<detail::TCPStoreServer> server_;
  std::mutex mutex_;  // guards idle_
  std::vector<detail::Descriptor> idle_;
};

}  // namespace lockstep::distributed
