// expect: cannot be divided among devices: it points to tensors.*hold them by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

struct Vocabulary {
  std::vector<std::string> words;
};

struct Batch {
#ifdef LOCKSTEP_CONTROL
  std::map<std::string, std::vector<lockstep::Tensor>> features;
#else
  std::map<std::string, std::shared_ptr<std::vector<lockstep::Tensor>>> features;
#endif
  std::shared_ptr<const Vocabulary> vocabulary;  // without tensors: for all devices
};

int main() { (void)lockstep::scatter(Batch(), {"cpu:0", "cpu:1"}); }
