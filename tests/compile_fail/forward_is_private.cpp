// expect: neither forward nor operator\(\) of this module takes these arguments, or it is private
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/loss.hpp>
#include <lockstep/parallel/data_parallel.hpp>

struct Net {
#ifndef LOCKSTEP_CONTROL
 private:
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  const lockstep::Tensor out = model(lockstep::Tensor());
  lockstep::mse_loss(model(lockstep::Tensor()), out).backward();
}
