// expect: no public forward that takes these arguments, each const, and returns something
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <concepts>
#include <optional>
#include <vector>

struct Net {
#ifdef LOCKSTEP_CONTROL
  int forward(int x) { return x; }
#else
  void forward(int /*x*/) {}
#endif
};

template <>
struct lockstep::module_traits<Net*> {
  template <class... Args>
  static auto forward(Net* net, const Args&... args) requires requires {
    { net->forward(args...) } -> std::move_constructible;
  }
  { return net->forward(args...); }
  static std::optional<Device> device(Net*) { return {}; }
};

int main() {
  Net net;
  std::vector<Net*> replicas{&net, &net};
  lockstep::parallel_apply(replicas, std::vector<int>{1, 2});
}
