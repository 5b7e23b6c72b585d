// expect: gather: results of this type cannot be put together
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <memory>
#include <optional>
#include <vector>

#ifdef LOCKSTEP_CONTROL
using Result = std::optional<int>;
#else
using Result = std::shared_ptr<int>;
#endif

int main() { (void)lockstep::gather(std::vector<Result>(2), "cpu"); }
