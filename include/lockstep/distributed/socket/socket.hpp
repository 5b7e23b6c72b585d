// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/descriptor.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/network_error.hpp>
#include <lockstep/error.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::distributed::detail {

using lockstep::detail::Descriptor;

// "host:port", "[host]:port" for an IPv6 address.
inline std::string endpoint(const std::string& host, std::uint16_t port) {
  const bool bare = host.find(':') == std::string::npos;
  return (bare ? host : '[' + host + ']') + ':' + std::to_string(port);
}

// The result of reading or writing without waiting.
struct Transfer {
  std::size_t bytes = 0;
  // 0, or the errno that says why no more will come: ECONNRESET also if the other side has
  // closed the connection.
  int error = 0;
};

// On Linux EWOULDBLOCK is EAGAIN.

// Reads what has come, without waiting.
inline Transfer receive_some(const Descriptor& socket, std::span<char> into) {
  while (true) {
    const ssize_t got = ::recv(socket.get(), into.data(), into.size(), 0);
    if (got > 0) return {static_cast<std::size_t>(got), 0};
    if (got == 0) return {0, ECONNRESET};
    if (errno == EAGAIN) return {};
    if (errno != EINTR) return {0, errno};
  }
}

// Writes what there is room for, without waiting. With MSG_NOSIGNAL a lost connection is an error
// of this call, not a SIGPIPE.
inline Transfer send_some(const Descriptor& socket, std::string_view bytes) {
  while (true) {
    const ssize_t put = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put >= 0) return {static_cast<std::size_t>(put), 0};
    if (errno == EAGAIN) return {};
    if (errno != EINTR) return {0, errno};
  }
}

// Makes the system send small messages at once (TCP_NODELAY).
inline void send_at_once(const Descriptor& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

// Waits until the socket can be read or written, or is broken. False at the deadline.
inline bool await(const Descriptor& socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry{socket.get(), events, 0};
    if (::poll(&entry, 1, deadline.poll_timeout()) > 0) return true;
    if (deadline.passed()) return false;
  }
}

// Both return 0 or an errno, which is ETIMEDOUT at the deadline.
inline int send_all(const Descriptor& socket, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const Transfer sent = send_some(socket, bytes);
    if (sent.error != 0) return sent.error;
    bytes.remove_prefix(sent.bytes);
    if (sent.bytes == 0 && !await(socket, POLLOUT, deadline)) return ETIMEDOUT;
  }
  return 0;
}
inline int receive_all(const Descriptor& socket, std::span<char> into, const Deadline& deadline) {
  while (!into.empty()) {
    const Transfer got = receive_some(socket, into);
    if (got.error != 0) return got.error;
    into = into.subspan(got.bytes);
    if (got.bytes == 0 && !await(socket, POLLIN, deadline)) return ETIMEDOUT;
  }
  return 0;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The addresses of a host; none, with the reason in `error`, if the name is unknown. May take as
// long as the system's resolver does.
inline Addresses resolve(const char* host, std::uint16_t port, std::string& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (code != 0) error = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
  return {code == 0 ? found : nullptr, &::freeaddrinfo};
}

// A non-blocking socket that exec closes.
inline Descriptor open_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};

// Listens on `port` of every interface, by IPv6 and IPv4 if the machine has both; 0 lets the system
// choose a port. A NetworkError if it cannot.
inline Listener listen_on(std::uint16_t port) {
  std::string reason;
  // An IPv6 socket accepts IPv4, too.
  for (const int family : {AF_INET6, AF_INET}) {
    Descriptor socket = open_socket(family);
    const int yes = 1;
    const int no = 0;
    if (socket) {
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (family == AF_INET6) {
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      }
    }
    sockaddr_storage any{};  // zeros: every interface
    any.ss_family = static_cast<sa_family_t>(family);
    // The port is at the same place in both kinds of address.
    in_port_t& bound = reinterpret_cast<sockaddr_in&>(any).sin_port;
    bound = htons(port);
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    socklen_t size = sizeof any;
    if (socket && ::bind(socket.get(), address, size) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0 &&
        ::getsockname(socket.get(), address, &size) == 0) {
      return {std::move(socket), ntohs(bound)};
    }
    reason = std::strerror(errno);
    if (errno == EADDRINUSE) break;  // by IPv4 too, clients might reach whoever has the port
  }
  lockstep::detail::fail<NetworkError>("cannot listen at port ", port, ": ", reason);
}

// True if a socket is connected to itself: if nobody listens on the port that is dialled, the
// system may choose that port as the caller's own.
inline bool connected_to_itself(const Descriptor& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size_here = sizeof here;
  socklen_t size_there = sizeof there;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size_here) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &size_there) == 0 &&
         size_here == size_there && std::memcmp(&here, &there, size_here) == 0;
}

// Tries once to connect. Returns 0 or an errno.
inline int connect_once(const Descriptor& socket, const addrinfo& address,
                        const Deadline& deadline) {
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!await(socket, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  return connected_to_itself(socket) ? ECONNREFUSED : 0;
}

// How long `connect_to` keeps trying.
enum class ConnectAttempts {
  once,
  until_refused,   // the other side has listened: if nobody does now, it has ended
  until_deadline,  // the other side may not have started yet, or its name not be known
};

// Connects to the first of the host's addresses that answers. A NetworkError if none does.
inline Descriptor connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline,
                             ConnectAttempts attempts = ConnectAttempts::until_deadline) {
  constexpr std::chrono::milliseconds kLongestAttempt{10000};
  constexpr std::chrono::milliseconds kLongestPause{200};
  std::string reason;
  bool refused = false;
  for (Pause pause(kLongestPause);; pause(deadline)) {
    const Addresses addresses = resolve(host.c_str(), port, reason);
    bool nobody_listens = false;
    bool other_error = false;
    for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
      Descriptor socket = open_socket(address->ai_family);
      const Deadline attempt(
          std::chrono::milliseconds(std::max(1, deadline.poll_timeout(kLongestAttempt))));
      const int error = socket ? connect_once(socket, *address, attempt) : errno;
      if (error == 0) {
        send_at_once(socket);
        return socket;
      }
      // This machine has no route to such an address: another one's error says more.
      const bool no_route = error == EADDRNOTAVAIL || error == ENETUNREACH || error == EAFNOSUPPORT;
      if (!no_route || !(nobody_listens || other_error)) reason = std::strerror(error);
      nobody_listens |= error == ECONNREFUSED;
      other_error |= !no_route && error != ECONNREFUSED;
    }
    refused = nobody_listens && !other_error;
    if (attempts == ConnectAttempts::once ||
        (attempts == ConnectAttempts::until_refused && refused) || deadline.passed())
      break;
  }
  const std::string limit = lockstep::detail::str(" within ", Seconds{deadline.timeout()});
  const bool known = attempts != ConnectAttempts::until_deadline;
  lockstep::detail::fail<NetworkError>(
      "cannot connect to ", endpoint(host, port), deadline.passed() ? limit : "", ": ", reason,
      refused ? ": nobody listens there" : "", refused && known ? " any more" : "");
}

}  // namespace lockstep::distributed::detail
