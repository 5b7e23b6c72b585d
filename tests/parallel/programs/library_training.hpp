// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/sync_batch_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/distributed.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "parallel/programs/make_layer.hpp"
#include "parallel/programs/program.hpp"
#include "parallel/programs/program_module.hpp"
#include "parallel/programs/reference_training.hpp"
#include "parallel/property_support.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

// A program's training by the library.
namespace lockstep::testing::programs {

// A stream of each device besides the default one.
inline const std::vector<Stream>& other_streams() {
  static const std::vector<Stream> others = [] {
    std::vector<Stream> streams;
    for (const Device device : program_devices()) streams.push_back(pool_stream(device));
    return streams;
  }();
  return others;
}

// Makes these current on some devices, and orders them as a user has to.
class OtherStreams {
 public:
  explicit OtherStreams(std::uint64_t bits) {
    for (const Stream& other : other_streams()) {
      if (bits % 2 == 1) {
        other.wait_stream(current_stream(other.device()));
        used_.push_back(other);
        guards_.emplace_back(other);
      }
      bits /= 2;
    }
  }
  OtherStreams(const OtherStreams&) = delete;
  OtherStreams& operator=(const OtherStreams&) = delete;
  ~OtherStreams() {
    while (!guards_.empty()) guards_.pop_back();
    for (const Stream& other : used_) current_stream(other.device()).wait_stream(other);
  }

 private:
  std::vector<Stream> used_;
  std::deque<StreamGuard> guards_;
};

// A module, its optimiser, and the rounds that they go through.
class LibraryTraining {
 public:
  static Trained train(const Program& program, Fault fault = nullptr) {
    Trained trained;
    try {
      if (program.way == Way::distributed) {
        train_ranks(program, fault, trained);
      } else {
        LibraryTraining training(program, fault, program.devices);
        if (program.way == Way::wrapper || program.way == Way::scattered) {
          training.wrapper_.emplace(training.net_, training.devices_, training.options_);
          training.running_ = &training.wrapper_->module();
        } else {
          to(training.net_, training.devices_[0]);
        }
        for (std::size_t r = 0; r < program.rounds.size(); ++r) {
          trained.rounds.push_back(
              training.run(r, {0, program.rounds[r].rows, 0},
                           [&](const Tree& tree) { return training.call(tree); }));
        }
      }
    } catch (const ValueError& error) {
      trained.error = error.what();
      trained.refused = true;
    } catch (const distributed::RankGone& error) {
      // Which rank's error is the first to be told is not said.
      trained.error = error.what();
      trained.refused = true;
    } catch (const std::exception& error) {
      trained.error = error.what();
    }
    return trained;
  }

 private:
  // Which rows of a round's batch a training has: all, or those of its rank.
  struct Part {
    std::int64_t start;
    std::int64_t rows;
    std::size_t rank;
  };

  LibraryTraining(const Program& program, Fault fault, const std::vector<std::size_t>& devices)
      : program_(program), net_{{}, &program, fault} {
    const Values first{program};
    for (std::size_t p = 0; p < program.parameters.size(); ++p) {
      const Parameter& own = program.parameters[p];
      const Tensor values = tensor(own.sizes, [&](std::size_t i) { return first.parameter(p, i); });
      parameters_.emplace_back(own.single ? values.to(Dtype::f32) : values);
      parameters_.back().requires_grad_(!own.frozen);
    }
    for (const std::size_t d : devices) devices_.push_back(program_devices()[d]);
    bool wraps = false;
    for (const Module& module : program.modules) {
      net_.layers.push_back(LayerMaker(program, module, parameters_, devices_[0]).make());
      wraps = wraps || module.op == Op::inner;
    }
    // A wrapper within has moved its own part, and the others have to be where that is.
    if (wraps) to(net_, devices_[0]);
    options_ = {
        .output_device = program_devices()[program.output_device],
        .dim = program.dim,
        .split = split(),
        .scalar_outputs = std::array{Reduction::none, Reduction::sum,
                                     Reduction::mean}[static_cast<std::size_t>(program.scalars)],
        .buffers = static_cast<ReplicaBuffers>(program.buffers)};
    if (!parameters_.empty() && program.type <= Type::f32) {
      sgd_.emplace(std::vector<Tensor>(parameters_.begin(), parameters_.end()),
                   optim::SGDOptions{.lr = kLearningRate});
    }
  }

  static void train_ranks(const Program& program, Fault fault, Trained& trained) {
    const std::size_t ranks = program.devices.size();
    std::vector<std::vector<Observed>> seen(ranks);
    std::vector<Device> devices;
    for (const std::size_t d : program.devices) devices.push_back(program_devices()[d]);
    std::exception_ptr error;
    try {
      distributed::run(devices, [&](distributed::ProcessGroup group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        LibraryTraining training(program, fault, {program.devices[rank]});
        DistributedDataParallelOptions options{.device_ids = {group.device()},
                                               .find_unused_parameters = true};
        if (program.small_buckets) options.bucket_cap_mb = 1e-5;
        DistributedDataParallel<Net> model(training.net_, group, options);
        training.running_ = &model.module();
        if (program.buffers == Buffers::synchronized) nn::convert_sync_batchnorm(model.module());
        for (std::size_t r = 0; r < program.rounds.size(); ++r) {
          std::vector<std::int64_t> chunks = chunks_of(program, program.rounds[r].rows);
          chunks.resize(ranks, 0);
          Part part{0, chunks[rank], rank};
          for (std::size_t c = 0; c < rank; ++c) part.start += chunks[c];
          seen[rank].push_back(
              training.run(r, part, [&](const Tree& tree) { return model(tree, program.factor); }));
        }
      });
    } catch (...) {
      error = std::current_exception();
    }
    std::size_t rounds = program.rounds.size();
    for (const auto& own : seen) rounds = std::min(rounds, own.size());
    for (std::size_t r = 0; r < rounds; ++r) trained.rounds.push_back(together(program, seen, r));
    if (error) std::rethrow_exception(error);
  }

  // What all ranks have seen, as one training would have.
  static Observed together(const Program& program, const std::vector<std::vector<Observed>>& seen,
                           std::size_t round) {
    Observed all = seen[0][round];
    for (std::size_t rank = 1; rank < seen.size(); ++rank) {
      const Observed& own = seen[rank][round];
      const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      for (std::size_t k = 0; k < all.outputs.size(); ++k) {
        append(all.outputs[k].values, own.outputs[k].values);
        const bool scalar = program.is_scalar(program.outputs[k]);
        if (scalar && rank == 1) all.outputs[k].sizes = {1};
        all.outputs[k].sizes[0] += scalar ? 1 : own.outputs[k].sizes[0];
      }
      for (std::size_t i = 0; i < all.input_gradients.size(); ++i) {
        append(all.input_gradients[i], own.input_gradients[i]);
      }
      check<Error>(own.parameters == all.parameters && own.gradients == all.gradients,
                   "parameters or gradients of rank ", rank, " are not those of rank 0");
    }
    return all;
  }

  template <class Call>
  Observed run(std::size_t r, const Part& part, const Call& call) {
    const Round& round = program_.rounds[r];
    const Values given{program_};
    std::uint64_t bits = round.streams;
    const auto stage = [&bits](const auto& work) {
      const OtherStreams streams(std::exchange(bits, bits / 64));
      return work();
    };
    stage([&] { prepare(r); });
    lockstep::train(*running_, round.train);

    const std::vector<Tensor> inputs = stage([&] { return make_inputs(r, part); });
    std::vector<Tensor> outputs;
    stage([&] {
      property::Random random(program_.seed % 1000 + r);
      // They come from another stage, whose stream may have been another one.
      for (const Tensor& input : inputs) input.record_stream(current_stream(input.device()));
      const Tree tree = nest(random, inputs);
      std::optional<NoGradGuard> no_grad;
      if (round.no_grad) no_grad.emplace();
      std::optional<AutocastGuard> autocast;
      if (program_.autocast) autocast.emplace(dtype_of(*program_.autocast));
      collect(call(tree), outputs);
    });
    Observed seen;
    const bool gathered = devices_.size() > 1 && program_.way != Way::distributed;
    for (Tensor& output : outputs) {
      check<Error>(!gathered || output.device() == options_.output_device, "an output is on ",
                   output.device());
      // As the reference has it.
      if (program_.dim != 0 && output.dim() > 1) output = transpose(output, 0, program_.dim);
      seen.outputs.push_back(
          {{output.sizes().begin(), output.sizes().end()}, property::values_of(output)});
    }
    stage([&] {
      Tensor loss;
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        const Tensor& output = outputs[k];
        if (!is_floating_point(output.dtype())) continue;       // indices
        output.record_stream(current_stream(output.device()));  // it comes from another stage
        const bool scalar = program_.is_scalar(program_.outputs[k]);
        const auto first = scalar ? part.rank
                                  : static_cast<std::size_t>(
                                        part.start * count(program_.sizes_of(program_.outputs[k])));
        const Tensor weights = tensor(seen.outputs[k].sizes, [&](std::size_t place) {
                                 return given.weight(k, first + place);
                               }).to(output.device());
        const Tensor term = sum(output.to(dtype()) * weights);
        loss = loss.defined() ? loss + term : term;
      }
      if (!loss.defined() || !loss.requires_grad()) return;
      if (program_.penalty) loss = loss + penalty(loss, inputs);
      loss.backward();
    });
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      seen.input_gradients.emplace_back();
      if (!program_.inputs[i].requires_grad || round.no_grad) continue;
      Tensor gradient = inputs[i].grad();
      if (gradient.defined() && program_.dim != 0) {
        gradient = transpose(gradient, 0, program_.dim);
      }
      seen.input_gradients[i] = values(gradient, inputs[i]);
    }
    for (const Tensor& own : parameters_) {
      check<Error>(!own.grad().defined() || own.grad().dtype() == own.dtype(),
                   "a gradient has not its parameter's dtype");
      seen.gradients.push_back(values(own.grad(), own));
    }
    stage([&] {
      if (sgd_) {
        sgd_->step();
        return;
      }
      const NoGradGuard no_grad;  // the optimiser refuses half precision
      for (Tensor& own : parameters_) {
        if (own.grad().defined()) own.copy_(own - own.grad().to_dense() * kLearningRate);
      }
    });
    for (const Tensor& own : parameters_) seen.parameters.push_back(property::values_of(own));
    for (const Layer& layer : running_->layers) {
      seen.buffers.emplace_back();
      std::visit(
          [&](const auto& own) {
            for (const auto& buffer : named_buffers(own)) {
              seen.buffers.back().push_back(property::values_of(buffer.tensor));
            }
          },
          layer);
    }
    return seen;
  }

  // What the user does before a round.
  void prepare(std::size_t r) {
    const Round& round = program_.rounds[r];
    if (round.freeze >= 0) {
      const Tensor& own = parameters_[static_cast<std::size_t>(round.freeze)];
      own.requires_grad_(!own.requires_grad());
    }
    if (round.change >= 0) {
      const auto p = static_cast<std::size_t>(round.change);
      const NoGradGuard no_grad;
      parameters_[p].copy_(tensor(program_.parameters[p].sizes, [&](std::size_t i) {
                             return Values{program_}.changed(r, p, i);
                           }).to(parameters_[p].device()));
    }
    if (round.zero_grad) {
      for (const Tensor& own : parameters_) own.set_grad({});
    }
  }

  std::vector<Tensor> make_inputs(std::size_t r, const Part& part) const {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const Input& input = program_.inputs[i];
      const auto first = static_cast<std::size_t>(part.start * count(input.sizes));
      Sizes sizes = input.sizes;
      sizes.insert(sizes.begin(), part.rows);
      Tensor x = tensor(
          sizes, [&](std::size_t place) { return Values{program_}.input(r, i, first + place); });
      if (input.classes > 0) x = x.to(input.i32 ? Dtype::i32 : Dtype::i64);
      if (program_.dim != 0 && x.dim() > 1) x = transpose(x, 0, program_.dim);
      if (input.on_first_device || program_.way == Way::distributed) x = x.to(devices_[0]);
      if (input.requires_grad) x.requires_grad_();
      inputs.push_back(x);
    }
    return inputs;
  }

  Tree call(const Tree& tree) {
    if (program_.way == Way::scattered && devices_.size() > 1) {
      return (*wrapper_)(scatter(tree, devices_, program_.dim, options_.split), program_.factor);
    }
    if (wrapper_) return (*wrapper_)(tree, program_.factor);
    const std::tuple arguments(tree, program_.factor);
    if (program_.way == Way::function) return data_parallel(net_, arguments, devices_, options_);
    const auto inputs = scatter(arguments, devices_, program_.dim, options_.split);
    const std::vector<Device> used(devices_.begin(),
                                   devices_.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    std::vector<Net> replicas = replicate(net_, used);
    if (devices_.size() == 1) return replicas[0].forward(std::get<0>(inputs[0]), program_.factor);
    return gather(parallel_apply(replicas, inputs), *options_.output_device, program_.dim);
  }

  // The gradients of a loss, weighted.
  Tensor penalty(const Tensor& loss, const std::vector<Tensor>& inputs) const {
    std::vector<Tensor> wanted;
    std::vector<std::size_t> numbers;
    std::vector<Tensor> all(parameters_.begin(), parameters_.end());
    all.insert(all.end(), inputs.begin(), inputs.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].requires_grad()) continue;
      wanted.push_back(all[i]);
      numbers.push_back(i);
    }
    const std::vector<Tensor> gradients = autograd::grad({loss}, wanted, {}, true, true, true);
    Tensor result = zeros({}, {.dtype = dtype(), .device = loss.device()});
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const bool rows_last = program_.dim != 0 && numbers[i] >= parameters_.size();
      const Tensor gradient = rows_last ? transpose(gradients[i], 0, program_.dim) : gradients[i];
      const Sizes sizes(gradient.sizes().begin(), gradient.sizes().end());
      const Tensor weights = tensor(sizes, [&](std::size_t place) {
        return Values{program_}.weight_of_gradient(numbers[i], place);
      });
      result = result + sum(gradient * weights.to(gradient.device())).to(loss.device());
    }
    return result;
  }

  Dtype dtype() const { return dtype_of_program(program_); }
  template <class F>
  Tensor tensor(const Sizes& sizes, F value) const {
    return make_tensor(program_, sizes, value);
  }
  static std::vector<double> values(const Tensor& gradient, const Tensor& like) {
    if (gradient.defined()) return property::values_of(gradient.to_dense());
    return std::vector<double>(static_cast<std::size_t>(like.numel()), 0.0);
  }

  Split split() const {
    switch (program_.splitting) {
      case Splitting::chunk:
        return Split::chunk.at_least(program_.at_least);
      case Splitting::balanced:
        return Split::balanced.at_least(program_.at_least);
      case Splitting::sizes:
        return Split::sizes(program_.chunks);
      default:
        return Split::weights({program_.chunks.begin(), program_.chunks.end()});
    }
  }

  const Program& program_;
  Net net_;
  Net* running_ = &net_;  // or the copy that a wrapper has
  std::vector<lockstep::Parameter> parameters_;
  std::vector<Device> devices_;
  DataParallelOptions options_;
  std::optional<DataParallel<Net>> wrapper_;
  std::optional<optim::SGD> sgd_;
};

}  // namespace lockstep::testing::programs
