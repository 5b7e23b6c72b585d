// SPDX-License-Identifier: Apache-2.0

// Loads a library in a thread that ends, has it start threads of its own, and unloads it: again and
// again. Its threads go on, and so their code has to stay.

#include <cstdio>
#include <thread>

#include <dlfcn.h>

namespace {

bool use(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return false;
  }
  const auto use_threads = reinterpret_cast<int (*)()>(dlsym(library, "use_threads"));
  const bool right = use_threads != nullptr && use_threads() == 0;
  dlclose(library);
  if (!right) std::fprintf(stderr, "the library lost something\n");
  return right;
}

// Opening and closing it lets go of a library that nothing holds any more.
bool is_loaded(const char* path) {
  for (int i = 0; i < 2; ++i) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return false;
    dlclose(library);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (is_loaded(argv[1])) return 3;
  for (int i = 0; i < 5; ++i) {
    bool right = false;
    std::thread([&] { right = use(argv[1]); }).join();
    if (!right) return 1;
    if (!is_loaded(argv[1])) {
      std::fprintf(stderr, "the library is gone, and its threads are not\n");
      return 1;
    }
  }
}
