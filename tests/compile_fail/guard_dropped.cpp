// expect: nodiscard.*NoGradGuard{}.*ModeGuard{}.*bf16}.*{false}.*StreamGuard{.*Guard{1}.*."step".
// errors: 7
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/profile/record_function.hpp>

#pragma GCC diagnostic error "-Wunused-result"  // g++
#pragma GCC diagnostic error "-Wunused-value"   // clang

namespace ls = lockstep;

int main() {
#ifdef LOCKSTEP_CONTROL
  const ls::NoGradGuard no_grad;
  const ls::GradModeGuard grad{true};
  const ls::InferenceModeGuard inference;
  const ls::AutocastGuard autocast{ls::Dtype::bf16}, off{false};
  const ls::StreamGuard stream{ls::pool_stream("cpu:0")};
  const ls::HostMathThreadsGuard threads{1};
  const ls::profile::RecordFunction range("step");
#else
  ls::NoGradGuard{};
  ls::InferenceModeGuard{};
  ls::AutocastGuard{ls::Dtype::bf16};
  ls::AutocastGuard{false};
  ls::StreamGuard{ls::pool_stream("cpu:0")};
  ls::HostMathThreadsGuard{1};
  ls::profile::RecordFunction("step");
#endif
}
