// expect: it is no plain aggregate .*a virtual base.*visit_members in it .examples.guides
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Base {
  lockstep::Parameter weight;
};

struct Net : virtual Base {
#ifdef LOCKSTEP_CONTROL
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight);
  }
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
