// SPDX-License-Identifier: Apache-2.0
#include "cudasim/fiber.hpp"
#include "cudasim/machine.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <string>

// Memory that is closed traps. The trap is an error like any other: it is reported, the memory
// opened, and the program goes on.
namespace cudasim {
namespace {

struct sigaction previous_action {};

// Whether the access that faulted was a write, as far as the processor tells.
bool was_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;
  const auto* state = static_cast<const ucontext_t*>(context);
  return (state->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  return true;
#endif
}

bool handled(void* address, bool write) {
  // The simulator itself does not touch closed memory, only what its streams run does.
  const bool locked = SimulatorMutex::held_here();
  if (locked && running_operation == nullptr) return false;
  if (!locked) SimulatorMutex::lock();
  Machine* const machine = machine_if_any();
  const bool ours = machine != nullptr && machine->handle_fault(address, write);
  if (!locked) SimulatorMutex::unlock();
  return ours;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const Unseen unseen;
  if (handled(info->si_addr, was_write(context))) return;
  // Not ours: the access is repeated, and meets whoever was there before.
  sigaction(signal, &previous_action, nullptr);
}

void open_pages(std::uintptr_t begin, std::size_t bytes) {
  begin = begin / kPage * kPage;
  mprotect(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE);
}

}  // namespace

void install_fault_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGSEGV, &action, &previous_action) == 0;
  }();
  (void)installed;
}

bool Machine::handle_fault(void* address, bool write) {
  if (!memory.reserved(address)) return false;
  const std::string does = write ? " writes " : " reads ";
  const bool by_operation = running_operation != nullptr;
  const std::string who = by_operation ? describe(*running_operation) : std::string("the host");
  Block* block = memory.find(address);
  const auto page = reinterpret_cast<std::uintptr_t>(address);
  if (block == nullptr) {
    report("OUT OF BOUNDS: " + who + does + "memory that is not allocated");
    open_pages(page, kPage);
    return true;
  }
  if (!block->live) {
    report("USE AFTER FREE: " + who + does + describe(*block));
  } else if (by_operation && !running_operation->host_function) {
    report("UNDECLARED: " + who + does + describe(*block) + ", which it did not say");
  } else if (block->device != kHost) {
    report("HOST ACCESS: " + who + does + describe(*block));
  } else {
    // A host function comes after what its stream has done before, the host itself after what it
    // has waited for.
    const Clock& knows = by_operation ? running_operation->clock : host_clock_;
    const MemoryUse use{address, 1, write};
    const auto held = std::find_if(block->held.begin(), block->held.end(), [&](const auto& each) {
      return (each.first.write || write) && overlap(each.first, use) &&
             !is_after(knows, *each.second);
    });
    if (held == block->held.end()) {  // another part of the page
      open_pages(page, kPage);
      return true;
    }
    report("RACE (" + std::string(held->first.write ? "write" : "read") +
           "/host): " + describe(*held->second) + " has not been waited for, and " + who + does +
           describe(*block));
  }
  memory.protect(*block, Memory::Rights::write);
  block->rested = false;
  return true;
}

}  // namespace cudasim
