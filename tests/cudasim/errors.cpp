// SPDX-License-Identifier: Apache-2.0
#include "cudasim/errors.hpp"
#include "cudasim/fiber.hpp"

#include "cudasim/machine.hpp"

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cudasim {
namespace {

constexpr std::size_t kMostErrors = 1000;  // that are kept word for word

struct Errors {
  std::mutex mutex;  // of its own: an operation's body may report an error
  std::vector<std::string> texts;
  std::size_t dropped = 0;
  bool print = false;
};

// Never destroyed: static objects may call the runtime when the program ends.
Errors& errors() {
  static auto* const all = new Errors;
  return *all;
}

std::string& own_scope() {
  static thread_local std::string label;
  return label;
}

}  // namespace

void report(const std::string& error) {
  const Unseen unseen;
  Errors& all = errors();
  const std::lock_guard guard(all.mutex);
  if (all.print) std::fprintf(stderr, "cudasim: %s\n", error.c_str());
  if (all.texts.size() < kMostErrors) {
    all.texts.push_back(error);
  } else {
    ++all.dropped;
  }
}

std::vector<std::string> collect_errors() {
  const Unseen unseen;
  Errors& all = errors();
  const std::lock_guard guard(all.mutex);
  if (all.dropped != 0) all.texts.push_back("and " + std::to_string(all.dropped) + " more");
  all.dropped = 0;
  return std::exchange(all.texts, {});
}

void print_errors(bool on) {
  const Unseen unseen;
  const std::lock_guard guard(errors().mutex);
  errors().print = on;
}

void scope(std::string label) { own_scope() = std::move(label); }

const std::string& current_scope() { return own_scope(); }

std::string in_scope() { return own_scope().empty() ? "" : " in " + own_scope(); }

std::string describe(const CUstream_st& stream) {
  const std::string device = "device " + std::to_string(stream.device);
  if (stream.number < 0) return "the synchronous stream of " + device;
  return "stream " + std::to_string(stream.number) + " of " + device;
}

std::string describe(const Operation& operation) {
  std::string text = "[#";
  text += std::to_string(operation.number) + " " + operation.name;
  text += operation.stream == nullptr ? " by the host" : " on " + describe(*operation.stream);
  if (!operation.scope.empty()) text += " in " + operation.scope;
  text += "]";
  return text;
}

std::string describe(const Block& block) {
  std::string text = std::to_string(block.bytes) + " bytes ";
  text += block.device == kHost ? "of page-locked memory"
                                : "of memory of device " + std::to_string(block.device);
  if (block.live && block.allocated_by) {
    text += " allocated by " + describe(*block.allocated_by);
  }
  if (!block.live && block.freed_by) text += " freed by " + describe(*block.freed_by);
  return text;
}

}  // namespace cudasim
