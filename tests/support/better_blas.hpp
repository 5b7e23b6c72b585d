// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>

#include <cstdlib>
#include <filesystem>

#include <unistd.h>

namespace lockstep::testing {

// OpenBLAS chooses its kernels when a program starts: where it has better ones, the program starts
// again, and all that it starts has them, too. For the beginning of main.
inline void start_with_better_blas(char** argv) {
  if (const char* core = detail::better_blas_core(detail::BlasControls::linked())) {
    setenv("OPENBLAS_CORETYPE", core, 1);
    // By its own name, which its threads have, too.
    execv(std::filesystem::read_symlink("/proc/self/exe").c_str(), argv);
  }
}

}  // namespace lockstep::testing
