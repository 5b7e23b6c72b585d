// expect: this module's parameters cannot be found.*declare the public static member template
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

#include <vector>

// A walk of its elements would not meet `scale`.
struct Block : std::vector<lockstep::Parameter> {
  using std::vector<lockstep::Parameter>::vector;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
#ifdef LOCKSTEP_CONTROL
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("scale", self.scale);
  }
#endif
  lockstep::Parameter scale;
};

struct Net {
  Block block;
};

int main() { return static_cast<int>(lockstep::parameters(Net{}).size()); }
