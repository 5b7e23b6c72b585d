// expect: this module's parameters cannot be found.*declare the public static member template
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

class Block {
 public:
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }

#ifdef LOCKSTEP_CONTROL
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight_);
  }
#endif

 private:
  lockstep::Parameter weight_;
};

struct Net {
  Block block;
};

int main() { return static_cast<int>(lockstep::parameters(Net{}).size()); }
