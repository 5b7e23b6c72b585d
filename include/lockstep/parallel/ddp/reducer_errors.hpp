// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <string>

// What a Reducer says of gradients that came when they should not have, or did not come. Parameters
// are named as in: 1 (fc.weight), 3 (fc2.weight)
namespace lockstep::detail {

[[noreturn]] inline void fail_second_gradient(int rank, const std::string& parameter) {
  fail<AutogradError>(
      "DistributedDataParallel: Expected to mark a variable ready only once. On rank ", rank,
      ", parameter ", parameter,
      " got a gradient after its bucket had been handed over: does an operation call backward "
      "within its own?");
}

[[noreturn]] inline void fail_static_graph_used(int rank, const std::string& parameter) {
  fail<AutogradError>(
      "DistributedDataParallel: Your training graph has changed in this iteration, e.g., one "
      "parameter is unused in first iteration, but then got used in the second iteration. this is "
      "not compatible with static_graph set to True. On rank ",
      rank, ", it is parameter ", parameter);
}

[[noreturn]] inline void fail_static_graph_unused(int rank, const std::string& parameters) {
  fail<AutogradError>(
      "DistributedDataParallel: Your training graph has changed in this iteration, e.g., one "
      "parameter is used in first iteration, but then got unused in the second iteration. this is "
      "not compatible with static_graph set to True. Parameter indices which did not receive grad "
      "for rank ",
      rank, ": ", parameters);
}

[[noreturn]] inline void fail_other_layout(bool expected_sparse, const std::string& parameter) {
  fail<ModuleError>("DistributedDataParallel: Expected variable to have ",
                    expected_sparse ? "sparse" : "dense", " gradient: parameter ", parameter,
                    expected_sparse ? " is marked by expect_sparse_gradient, and got a dense one"
                                    : " is not marked by expect_sparse_gradient, and got a sparse "
                                      "one: mark it on every rank before the "
                                      "DistributedDataParallel is made");
}

[[noreturn]] inline void fail_hook_and_sparse(const std::string& parameters) {
  fail<ValueError>(
      "register_comm_hook: a hook reduces buckets of dense gradients, but those of parameters ",
      parameters, " are sparse");
}

inline constexpr const char* kUnusedRemedy =
    ". If that is meant, set find_unused_parameters; else see to it that all outputs of forward "
    "take part in the loss";

[[noreturn]] inline void fail_unused(int rank, const std::string& parameters) {
  fail<AutogradError>(
      "DistributedDataParallel: your module has parameters that were not used in producing loss. "
      "Parameter indices which did not receive grad for rank ",
      rank, ": ", parameters, kUnusedRemedy);
}

[[noreturn]] inline void fail_replaced(const std::string& name) {
  fail<ModuleError>(
      "DistributedDataParallel: parameter \"", name,
      "\" was replaced, added or unfrozen after the DistributedDataParallel was made, and its "
      "gradient would remain each rank's own: change the module before, or wrap it again");
}

// `where`: "parameter 3 (extra) got none on rank 1; …"
[[noreturn]] inline void fail_unused_elsewhere(int rank, const std::string& where, bool joined) {
  fail<AutogradError>(
      "DistributedDataParallel: your module has parameters that were not used in producing loss. ",
      joined ? "This rank, " : "All got a gradient on this rank, ", rank,
      joined ? ", has no inputs left; of those that have, " : ", but not on all others: ", where,
      kUnusedRemedy);
}

}  // namespace lockstep::detail
