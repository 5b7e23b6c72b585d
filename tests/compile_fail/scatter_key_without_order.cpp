// expect: cannot be divided among devices: the keys of this map need operator<
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <functional>
#include <unordered_map>

enum class View { left, right };

#ifdef LOCKSTEP_CONTROL
using Key = int;
#else
using Key = View;
#endif

int main() {
  const std::unordered_map<Key, lockstep::Tensor> views;
  (void)lockstep::scatter(views, {"cpu:0", "cpu:1"});
}
