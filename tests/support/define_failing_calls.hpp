// SPDX-License-Identifier: Apache-2.0
#pragma once

// Puts functions of the C library that can fail between the whole program and the library. For one
// file of it.
#include "support/failing_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace lockstep::testing {

struct CallFaults {
  std::atomic<std::uint64_t> first{0};  // the number of the first that fails, 0 without one
  std::atomic<CallKind> kind{CallKind::thread};
  std::atomic<bool> lasting{false};
  std::atomic<int> error{0};
  std::atomic<bool> struck{false};
  std::atomic<std::uint64_t> tried{0};
  std::atomic<std::size_t> most{static_cast<std::size_t>(-1)};  // bytes

  bool fails(CallKind called) noexcept {
    const std::uint64_t nth = first.load();
    if (nth == 0 || kind.load() != called) return false;
    const std::uint64_t number = tried.fetch_add(1) + 1;
    if (number < nth || (number > nth && !lasting.load())) return false;
    struck = true;
    return true;
  }
};
inline constinit CallFaults call_faults;

FailingCalls::FailingCalls(CallKind kind, std::uint64_t nth, bool lasting, int error) {
  call_faults.error = error;
  call_faults.kind = kind;
  call_faults.lasting = lasting;
  call_faults.struck = false;
  call_faults.tried = 0;
  call_faults.first = nth;
}
FailingCalls::~FailingCalls() { call_faults.first = 0; }
bool FailingCalls::has_struck() { return call_faults.struck; }

ShortCalls::ShortCalls(std::size_t most) { call_faults.most = most; }
ShortCalls::~ShortCalls() { call_faults.most = static_cast<std::size_t>(-1); }

// Calls the C library's function of that name, or fails, with `error` where the test has no other.
template <class Function, class... Args>
auto call_or_fail(CallKind kind, const char* name, int error, Args... args) {
  using Result = decltype((*static_cast<Function*>(nullptr))(args...));
  if (call_faults.fails(kind)) {
    errno = call_faults.error != 0 ? call_faults.error.load() : error;
    return static_cast<Result>(-1);
  }
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name))(args...);
}

inline CallKind kind_of(int descriptor) {
  int type = 0;
  socklen_t size = sizeof(type);
  const bool socket = ::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  return socket ? CallKind::socket : CallKind::file;
}

}  // namespace lockstep::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define LOCKSTEP_DEFINES_CALLS 1
#elif !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define LOCKSTEP_DEFINES_CALLS 1
#endif
#endif

#if defined(LOCKSTEP_DEFINES_CALLS)
#undef LOCKSTEP_DEFINES_CALLS

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  using lockstep::testing::call_faults;
  if (call_faults.fails(lockstep::testing::CallKind::thread)) return EAGAIN;
  return reinterpret_cast<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
      ::dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
}

int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  using lockstep::testing::CallKind;
  return lockstep::testing::call_or_fail<int(const char*, int, ...)>(CallKind::file, "open", EMFILE,
                                                                     path, flags, mode);
}
ssize_t pread(int file, void* bytes, std::size_t size, off_t offset) {
  const std::size_t most = lockstep::testing::call_faults.most;
  return lockstep::testing::call_or_fail<ssize_t(int, void*, std::size_t, off_t)>(
      lockstep::testing::CallKind::file, "pread", EIO, file, bytes, std::min(size, most), offset);
}
ssize_t pwrite(int file, const void* bytes, std::size_t size, off_t offset) {
  const std::size_t most = lockstep::testing::call_faults.most;
  return lockstep::testing::call_or_fail<ssize_t(int, const void*, std::size_t, off_t)>(
      lockstep::testing::CallKind::file, "pwrite", ENOSPC, file, bytes, std::min(size, most),
      offset);
}
ssize_t read(int file, void* bytes, std::size_t size) {
  return lockstep::testing::call_or_fail<ssize_t(int, void*, std::size_t)>(
      lockstep::testing::kind_of(file), "read", EIO, file, bytes, size);
}
ssize_t write(int file, const void* bytes, std::size_t size) {
  return lockstep::testing::call_or_fail<ssize_t(int, const void*, std::size_t)>(
      lockstep::testing::kind_of(file), "write", ENOSPC, file, bytes, size);
}
int fsync(int file) {
  return lockstep::testing::call_or_fail<int(int)>(lockstep::testing::CallKind::file, "fsync", EIO,
                                                   file);
}
int rename(const char* from, const char* to) noexcept {
  return lockstep::testing::call_or_fail<int(const char*, const char*)>(
      lockstep::testing::CallKind::file, "rename", EIO, from, to);
}
int socket(int domain, int type, int protocol) noexcept {
  return lockstep::testing::call_or_fail<int(int, int, int)>(
      lockstep::testing::CallKind::socket, "socket", EMFILE, domain, type, protocol);
}
int connect(int socket, const sockaddr* address, socklen_t size) {
  return lockstep::testing::call_or_fail<int(int, const sockaddr*, socklen_t)>(
      lockstep::testing::CallKind::socket, "connect", ETIMEDOUT, socket, address, size);
}
int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  return lockstep::testing::call_or_fail<int(int, sockaddr*, socklen_t*, int)>(
      lockstep::testing::CallKind::socket, "accept4", EMFILE, socket, address, size, flags);
}
ssize_t send(int socket, const void* bytes, std::size_t size, int flags) {
  return lockstep::testing::call_or_fail<ssize_t(int, const void*, std::size_t, int)>(
      lockstep::testing::CallKind::socket, "send", ECONNRESET, socket, bytes, size, flags);
}
ssize_t recv(int socket, void* bytes, std::size_t size, int flags) {
  return lockstep::testing::call_or_fail<ssize_t(int, void*, std::size_t, int)>(
      lockstep::testing::CallKind::socket, "recv", ECONNRESET, socket, bytes, size, flags);
}

}  // extern "C"

#endif
