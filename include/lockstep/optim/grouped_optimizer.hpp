// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/reflect.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/parameter_list.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::optim {

// For the functions that an optimiser provides; see state_reader.hpp.
using lockstep::detail::named_number;
using lockstep::detail::StateReader;

// True if a group's members after its parameters have the names and the order of the options.
template <class Options, class Group>
inline constexpr bool is_group_of = [] {
  using lockstep::detail::member_count;
  using lockstep::detail::member_name;
  if constexpr (member_count<Group> != member_count<Options> + 1) {
    return false;
  } else {
    return []<std::size_t... i>(std::index_sequence<i...>) {
      return (... && (member_name<Group, i + 1> == member_name<Options, i>));
    }
    (std::make_index_sequence<member_count<Options>>{});
  }
}();

// The settings of `group`, and the default for each that it leaves out.
template <class Options, class Group>
Options with_defaults(const Group& group, Options defaults) {
  static_assert(is_group_of<Options, Group>,
                "lockstep: an optimiser's Group has its parameters and then, by the names and in "
                "the order of its Options, an optional member for each of them");
  const auto given = detail::tie_members(group);  // the parameters, then the settings
  const auto chosen = detail::tie_members(defaults);
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((std::get<i>(chosen) = std::get<i + 1>(given).value_or(std::get<i>(chosen))), ...);
  }
  (std::make_index_sequence<detail::member_count<Options>>{});
  return defaults;
}

// Calls `visit(name, number)` for all numbers of `options`. Those of a pair are named as "betas.0".
template <class Options, class Visit>
void for_each_number(Options& options, const std::string& prefix, const Visit& visit) {
  for_each_member(options, [&](std::string_view member, auto& value) {
    const std::string name = prefix + std::string(member);
    if constexpr (requires { value.second; }) {
      visit(name + ".0", value.first);
      visit(name + ".1", value.second);
    } else {
      visit(name, value);
    }
  });
}

// The base of optimisers, lockstep's and your own: each group has Options, and each parameter a
// State.
//
// Options is an aggregate of numbers, flags and pairs of numbers, one of which is `lr`. Group is an
// aggregate of a ParameterList `params` and, for each member of Options and in the same order, an
// optional of the same name that overrides the optimiser's default. In the namespace of these types
// there must be
//
//   void check_options(const char* optimizer, const Options&);  // throws a ValueError
//   void list_state(StateDict&, const std::string& prefix, const State&);  // nothing before a step
//   State read_state(StateReader&, const std::string& prefix, const Tensor& parameter,
//                    const State& like);
//
// where `like` only selects the overload. Names in a state dict are torch's, joined with dots;
// options have the names of their members. The class adds constructors and `step`, which calls
// `check_all_options` and then `update_each`; see SGD.
template <class Options, class Group, class State>
class GroupedOptimizer : public Optimizer {
 public:
  // The settings of a group. Changes apply from the next step on.
  //
  // **Torch counterpart.** Optimizer.param_groups.
  // **Example.** sgd.options(1).weight_decay = 0;
  Options& options(std::size_t group = 0) {
    check_group(group);
    return options_[group];
  }
  const Options& options(std::size_t group = 0) const {
    check_group(group);
    return options_[group];
  }

  // Adds a group. Settings left out are those with which the optimiser was made.
  //
  // **Torch counterpart.** Optimizer.add_param_group.
  // **Threads and exceptions.** As the constructor, and a ValueError for a parameter that is in
  // another group; then nothing is added.
  // **Example.** sgd.add_param_group({.params = parameters(net.body), .lr = 0.01});
  void add_param_group(const Group& group) {
    check_not_moved();
    add(group, true);
  }

  // The settings and the state of each parameter, by name ("param_groups.0.lr", "state.0.exp_avg"),
  // with numbers as tensors of one element, as io::save_file can write them. It includes
  // initial_lr() if a schedule has asked for it.
  //
  // Parameters are identified by position: load into an optimiser with the same parameters in the
  // same order and groups. The tensors are the optimiser's own and change with the next step
  // (lockstep::clone copies them).
  //
  // **Torch counterpart.** Optimizer.state_dict.
  StateDict state_dict() const {
    check_not_moved();
    StateDict dict;
    std::int64_t listed = 0;
    for (std::size_t group = 0; group < group_count(); ++group) {
      std::vector<std::int64_t> places(parameters(group).size());
      for (std::int64_t& place : places) place = listed++;
      dict.push_back({group_prefix(group) + "params",
                      from_values(places, {static_cast<std::int64_t>(places.size())})});
      for_each_number(options_[group], group_prefix(group),
                      [&dict](const std::string& name, const auto& number) {
                        dict.push_back(named_number(name, number));
                      });
      if (group < initial_lrs().size()) {
        dict.push_back(named_number(group_prefix(group) + "initial_lr", initial_lrs()[group]));
      }
    }
    for (std::size_t i = 0; i < states_.size(); ++i) list_state(dict, state_prefix(i), states_[i]);
    return dict;
  }

  // Loads the settings, and copies of the state, that `state_dict` returned, in the dtype and on
  // the device of each parameter: training continues with the same bits.
  //
  // **Torch counterpart.** Optimizer.load_state_dict.
  // **Devices and streams.** The copies are issued to the current streams.
  // **Threads and exceptions.** A ModuleError that lists all that is missing, unexpected or of
  // another shape, or a ValueError for a setting that the constructor would refuse; then nothing is
  // changed.
  void load_state_dict(const StateDict& dict) {
    check_not_moved();
    detail::StateReader reader(name(), dict);
    std::vector<Options> options;
    std::vector<double> initial_lrs;
    for (std::size_t group = 0; group < group_count(); ++group) {
      reader.expect_indices(group_prefix(group) + "params", parameters(group).size());
      for_each_number(options.emplace_back(), group_prefix(group),
                      [&reader]<class T>(const std::string& name, T& number) {
                        number = reader.number<T>(name);
                      });
      const std::string initial_lr = group_prefix(group) + "initial_lr";
      if (initial_lrs.size() == group && reader.has_any(initial_lr)) {
        initial_lrs.push_back(reader.number<double>(initial_lr));
      }
    }
    std::vector<State> states(states_.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!reader.has_any(state_prefix(i))) continue;
      states[i] = read_state(reader, state_prefix(i), parameters()[i], states[i]);
    }
    reader.finish();
    for (const Options& group : options) check_options(name(), group);
    for (const double lr : initial_lrs) check_setting(name(), "initial_lr", lr);
    if (!initial_lrs.empty()) set_initial_lrs(std::move(initial_lrs));
    options_ = std::move(options);
    states_ = std::move(states);
  }

 protected:
  GroupedOptimizer(const char* name, const ParameterList& list, const Options& options)
      : GroupedOptimizer(name, std::vector<Group>{Group{.params = list}}, options) {}

  GroupedOptimizer(const char* name, const std::vector<Group>& groups, const Options& defaults)
      : Optimizer(name), defaults_(defaults) {
    check_options(name, defaults);
    for (const Group& group : groups) add(group, groups.size() > 1);
    check<ValueError>(!parameters().empty(), name, ": the list of parameters is empty");
  }

  // Checks the settings of all groups, which may have been changed through options().
  void check_all_options() const {
    for (const Options& options : options_) check_options(name(), options);
  }

  State& state(std::size_t i) { return states_[i]; }
  const State& state(std::size_t i) const { return states_[i]; }

 private:
  void add(const Group& group, bool one_of_several) {
    const Options options = with_defaults(group, defaults_);
    check_options(name(), options);
    options_.reserve(options_.size() + 1);
    states_.reserve(states_.size() + group.params.tensors().size());
    append(group.params, one_of_several);
    options_.push_back(options);
    states_.resize(parameters().size());
  }

  static std::string group_prefix(std::size_t group) {
    return "param_groups." + std::to_string(group) + ".";
  }
  static std::string state_prefix(std::size_t i) { return "state." + std::to_string(i) + "."; }

  double lr_of(std::size_t group) const override { return options_[group].lr; }
  void set_lr_of(std::size_t group, double lr) override { options_[group].lr = lr; }

  Options defaults_;
  std::vector<Options> options_;  // one for each group
  std::vector<State> states_;     // one for each parameter
};

}  // namespace lockstep::optim
