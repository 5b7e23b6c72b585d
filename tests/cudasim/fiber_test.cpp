// SPDX-License-Identifier: Apache-2.0
#include "cudasim/fiber.hpp"

#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#if defined(CUDASIM_FIBERS)

#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>
#include <thread>

// That ThreadSanitizer reports what a program leaves without order on the simulated devices, with
// both places, whenever the two run; and nothing where CUDA gives an order. Each program is a
// process of its own, which ends otherwise than with 0 if there was a report.
namespace cudasim::test {
namespace fiber_test {

[[gnu::noinline]] void first_kernel(float* data) { *data = 1; }
[[gnu::noinline]] void second_kernel(float* data) { *data += 1; }
[[gnu::noinline]] void host_use(float* data) { *data += 2; }

enum class Order { none, given };

void launch(const Stream& stream, void (*kernel)(float*), float* data) {
  stream.run("kernel", {{data, sizeof(float), true}}, [kernel, data] { kernel(data); });
}

void two_streams(Order order) {
  const Stream one;
  const Stream two;
  Floats data(1, one);
  two.wait(one);  // for the allocation
  launch(one, first_kernel, data.data());
  if (order == Order::given) two.wait(one);
  launch(two, second_kernel, data.data());
  two.synchronize();
  one.synchronize();
  data.record_stream(two);
}

// Locals of kernels lie where those of other kernels lay, and are no one else's.
void locals() {
  const Stream one;
  const Stream two;
  for (const Stream* stream : {&one, &two}) {
    stream->run("kernel", {}, [] {
      float local = 0;
      first_kernel(&local);
    });
  }
  one.synchronize();
  two.synchronize();
}

void the_host(Order order) {
  const Stream stream;
  const PageLocked data(1);
  launch(stream, first_kernel, data.data());
  if (order == Order::given) stream.synchronize();
  host_use(data.data());
  stream.synchronize();
}

void a_query(Order order) {
  const Stream stream;
  const PageLocked data(1);
  launch(stream, first_kernel, data.data());
  if (order == Order::given) {
    while (cudaStreamQuery(stream.get()) == cudaErrorNotReady) continue;
  }
  host_use(data.data());
  stream.synchronize();
}

// What one thread has waited for, another has not.
void two_threads(Order order) {
  const Stream stream;
  const PageLocked data(1);
  std::atomic<bool> waited{false};
  launch(stream, first_kernel, data.data());
  std::thread other([&] {
    stream.synchronize();
    waited.store(true, std::memory_order_relaxed);
  });
  while (!waited.load(std::memory_order_relaxed)) continue;
  if (order == Order::given) stream.synchronize();
  host_use(data.data());
  other.join();
}

// What the host has prepared for a kernel is the kernel's; what it does afterwards is unordered.
void launch_comes_after_the_host(Order order) {
  const Stream stream;
  float data = 0;
  if (order == Order::given) host_use(&data);
  stream.run("kernel", {}, [&data] { first_kernel(&data); });
  if (order == Order::none) host_use(&data);
  stream.synchronize();
}

void a_host_function(Order order) {
  const Stream one;
  const Stream two;
  float data = 0;
  one.run("kernel", {}, [&data] { first_kernel(&data); });
  const Stream& other = order == Order::given ? one : two;
  ok(cudaLaunchHostFunc(
      other.get(), [](void* argument) { second_kernel(static_cast<float*>(argument)); }, &data));
  one.synchronize();
  two.synchronize();
}

void the_free(Order order) {
  set_policy(Policy::eager);  // of a free that comes first the simulator itself speaks
  const Stream one;
  const Stream two;
  Floats data(1, one);
  two.wait(one);
  launch(two, first_kernel, data.data());
  if (order == Order::given) data.record_stream(two);
}

using Program = void (*)(Order);
struct Case {
  const char* name;
  Program program;
  const char* places;  // that the report names, as a regular expression

  friend std::ostream& operator<<(std::ostream& out, const Case& each) { return out << each.name; }
};

constexpr const char* kKernelAndHost =
    "data race(.|\n)*(first_kernel|host_use)(.|\n)*(first_kernel|host_use)";

class FiberDeathTest : public ::testing::TestWithParam<Case> {};

[[noreturn]] void run(Policy policy, const std::function<void()>& program) {
  Config config;
  config.policy = policy;
  reset(config);
  program();
  drain();
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

bool with_report(int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; }

TEST_P(FiberDeathTest, WithoutOrderIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Policy policy : {Policy::eager, Policy::lazy}) {
    EXPECT_EXIT(run(policy, [] { GetParam().program(Order::none); }), with_report,
                GetParam().places);
  }
}

TEST_P(FiberDeathTest, InOrderIsNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Policy policy : {Policy::eager, Policy::lazy, Policy::random}) {
    EXPECT_EXIT(run(policy, [] { GetParam().program(Order::given); }), ::testing::ExitedWithCode(0),
                "");
  }
}

TEST(CudasimFiberDeathTest, LocalsOfKernelsAreTheirOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run(Policy::eager, locals), ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(
    Cudasim, FiberDeathTest,
    ::testing::Values(Case{"TwoStreams", two_streams,
                           "data race(.|\n)*(first|second)_kernel(.|\n)*(first|second)_kernel"
                           "(.|\n)*stream [01] of device 0(.|\n)*stream [01] of device 0"},
                      Case{"TheHost", the_host, kKernelAndHost},
                      Case{"AQuery", a_query, kKernelAndHost},
                      Case{"TwoThreads", two_threads,
                           "data race(.|\n)*host_use(.|\n)*first_kernel"},
                      Case{"Launch", launch_comes_after_the_host, kKernelAndHost},
                      Case{"AHostFunction", a_host_function,
                           "data race(.|\n)*(first|second)_kernel(.|\n)*(first|second)_kernel"},
                      Case{"TheFree", the_free, "data race(.|\n)*first_kernel"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace fiber_test
}  // namespace cudasim::test

#endif
