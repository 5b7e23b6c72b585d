// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cudasim {

// The errors reported since the last call, without running anything first.
std::vector<std::string> collect_errors();
void print_errors(bool on);

}  // namespace cudasim
