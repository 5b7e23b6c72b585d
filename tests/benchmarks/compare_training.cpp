// SPDX-License-Identifier: Apache-2.0
//
// Training steps of the three small models, served to `compare`: see served_training.hpp.
#include "compare_models.hpp"
#include "served_training.hpp"

int main(int argc, char** argv) {
  using namespace compare;
  return serve_training(argc, argv, Named<Tiny>{"tiny"}, Named<Mlp>{"mlp"}, Named<Cnn>{"cnn"});
}
