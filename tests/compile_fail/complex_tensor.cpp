// expect: tensors of complex numbers are not supported: hold real and imaginary
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/creation.hpp>

#include <complex>

#ifdef LOCKSTEP_CONTROL
using Value = double;
#else
using Value = std::complex<double>;
#endif

int main() { (void)lockstep::scalar_tensor(Value(1)); }
