// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/error.hpp>

#include <netdb.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::distributed {

// Thrown if an address cannot be listened at, a host cannot be reached or a connection is lost;
// names host and port.
//
// **Torch counterpart.** torch.distributed.DistNetworkError.
class NetworkError : public Error {
 public:
  using Error::Error;
};

namespace detail {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  void reset();

 private:
  int descriptor_ = -1;
};

// "host:port", "[host]:port" for an IPv6 address.
std::string endpoint(const std::string& host, std::uint16_t port);

// The result of reading or writing without waiting.
struct Transfer {
  std::size_t bytes = 0;
  // 0, or why there will be no more, in errno's terms: ECONNRESET also for an orderly end of the
  // other side.
  int error = 0;
};

// Read what has come, or write what there is room for, without waiting.
Transfer receive_some(const Descriptor& socket, std::span<char> into);
Transfer send_some(const Descriptor& socket, std::string_view bytes);

// Has small messages sent at once (TCP_NODELAY).
void send_at_once(const Descriptor& socket);

// Waits until the socket can be read or written, or is broken. False at the deadline.
bool await(const Descriptor& socket, short events, const Deadline& deadline);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The addresses of a host, or of all of this machine's interfaces for null. Empty, with the reason
// in `error`, if the name is not known. May take as long as the system's resolver does.
Addresses resolve(const char* host, std::uint16_t port, std::string& error);

// Both return 0, or the reason in errno's terms: ETIMEDOUT at the deadline.
int send_all(const Descriptor& socket, std::string_view bytes, const Deadline& deadline);
int receive_all(const Descriptor& socket, std::span<char> into, const Deadline& deadline);

// A socket that does not block and that exec closes.
Descriptor open_socket(const addrinfo& address);

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};

// Listens at `port` of every interface, by IPv6 and IPv4 where the machine has both; 0 lets the
// system choose a port. A NetworkError where it cannot.
Listener listen_on(std::uint16_t port);

// Tries once to connect. Returns 0, or the reason in errno's terms.
int connect_once(const Descriptor& socket, const addrinfo& address, const Deadline& deadline);

// For how long `connect_to` tries again.
enum class ConnectAttempts {
  once,
  until_refused,   // the other side has been there: if nobody is at its port, it has ended
  until_deadline,  // the other side may not have been started yet, or its name not be known
};

// Connects to the first of the host's addresses that answers. A NetworkError where none does.
Descriptor connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline,
                      ConnectAttempts attempts = ConnectAttempts::until_deadline);

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/socket/impl/socket.ipp>
#endif
