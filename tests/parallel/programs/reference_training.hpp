// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/program.hpp"
#include "parallel/programs/reference.hpp"
#include "parallel/programs/tape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

// A program's training by the formulas of reference.hpp: chunk by chunk, round by round.
namespace lockstep::testing::programs {

// How many rows each device gets: torch's rule, or what Split promises.
inline std::vector<std::int64_t> chunks_of(const Program& program, std::int64_t rows) {
  const auto devices = static_cast<std::int64_t>(program.devices.size());
  if (devices == 1) return {rows};
  if (program.splitting == Splitting::sizes) return program.chunks;
  if (rows == 0) return std::vector<std::int64_t>(program.devices.size(), 0);
  for (std::int64_t used = devices;; --used) {
    std::vector<std::int64_t> sizes;
    const std::int64_t n = std::min(used, rows);
    const double all = std::accumulate(program.chunks.begin(), program.chunks.end(), 0.0);
    std::int64_t start = 0;
    double weight = 0;
    double weights = 0;
    for (std::int64_t i = 0; i < n && all > 0; ++i) {
      weights += static_cast<double>(program.chunks[static_cast<std::size_t>(i)]);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t end = rows;
      if (program.splitting == Splitting::chunk) {
        end = std::min(rows, start + (rows + used - 1) / used);
      } else if (program.splitting == Splitting::balanced) {
        end = start + rows / n + (i < rows % n ? 1 : 0);
      } else if (i < n - 1) {
        weight += static_cast<double>(program.chunks[static_cast<std::size_t>(i)]);
        const auto ideal = std::llround(static_cast<double>(rows) * (weight / weights));
        end = std::clamp<std::int64_t>(ideal, start + 1, rows - (n - 1 - i));
      }
      if (end > start) sizes.push_back(end - start);
      start = end;
    }
    if (used == 1 || *std::min_element(sizes.begin(), sizes.end()) >= program.at_least) {
      return sizes;
    }
  }
}

class ReferenceTraining {
  using Numbers = std::vector<Number>;

  explicit ReferenceTraining(const Program& program) : program_(program) {
    const Values first{program};
    for (std::size_t p = 0; p < program.parameters.size(); ++p) {
      const auto n = static_cast<std::size_t>(count(program.parameters[p].sizes));
      Numbers values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = first.parameter(p, i);
      parameters_.push_back(values);
      gradients_.emplace_back(n);
      frozen_.push_back(program.parameters[p].frozen);
    }
    for (const Module& module : program.modules) {
      const auto n = static_cast<std::size_t>(module.numbers[0]);
      std::vector<Numbers> own;
      if (module.op == Op::batch_norm && module.numbers[3] != 0) {
        own = {Numbers(n, 0.0), Numbers(n, 1.0), {0.0}};
      }
      if (module.op == Op::affine || module.op == Op::average) own = {Numbers(n, 0.25)};
      buffers_.push_back(own);
    }
  }

 public:
  static Trained train(const Program& program) {
    ReferenceTraining training(program);
    Trained trained;
    try {
      for (std::size_t round = 0; round < program.rounds.size(); ++round) {
        auto [seen, errors] = training.run(round);
        trained.rounds.push_back(std::move(seen));
        trained.errors.push_back(std::move(errors));
      }
    } catch (const Refused& refused) {
      trained.error = refused.what();
      trained.refused = true;
    }
    return trained;
  }

 private:
  // Numbers as they are observed, and by how much they may be off.
  struct Both {
    std::vector<double> values;
    std::vector<double> errors;

    explicit Both(const Numbers& numbers) {
      for (const Number& number : numbers) {
        values.push_back(number.value);
        errors.push_back(number.error * kSlack * Tape::current->unit());
      }
    }
  };

  // What is to be observed and its errors. Throws Refused where the library has to refuse.
  std::pair<Observed, Observed> run(std::size_t round) {
    const Round& now = program_.rounds[round];
    const Values given{program_};
    if (now.freeze >= 0) frozen_[static_cast<std::size_t>(now.freeze)].flip();
    if (now.change >= 0) {
      Numbers& values = parameters_[static_cast<std::size_t>(now.change)];
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = given.changed(round, static_cast<std::size_t>(now.change), i);
      }
    }
    if (now.zero_grad) {
      for (Numbers& gradient : gradients_) gradient.assign(gradient.size(), 0.0);
    }

    Tape tape(Precision::of(program_.coarsest()));
    Tape::current = &tape;
    train_ = now.train;
    recorded_ = !now.no_grad;
    chunks_ = chunks_of(program_, now.rows);
    // A rank without rows runs all the same.
    if (program_.way == Way::distributed) chunks_.resize(program_.devices.size(), 0);
    variables_.clear();
    directions_.clear();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      variables_.push_back(array(program_.parameters[p].sizes, parameters_[p], !frozen_[p], p));
    }
    new_buffers_.assign(chunks_.size(), buffers_);

    std::vector<std::vector<Array>> values;  // by value and chunk
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const Input& input = program_.inputs[i];
      std::vector<Array> parts;
      std::size_t place = 0;
      for (const std::int64_t rows : chunks_) {
        Sizes sizes = input.sizes;
        sizes.insert(sizes.begin(), rows);
        Numbers part(static_cast<std::size_t>(count(sizes)));
        const std::size_t first = place;
        for (Number& value : part) value = given.input(round, i, place++);
        parts.push_back(
            array(sizes, part, input.requires_grad, program_.parameters.size() + i, first));
      }
      values.push_back(parts);
    }
    for (const Step& step : program_.steps) {
      std::vector<std::vector<Array>> operands;  // by chunk
      for (std::size_t c = 0; c < chunks_.size(); ++c) {
        operands.emplace_back();
        for (const std::size_t value : step.from) operands[c].push_back(values[value][c]);
      }
      std::vector<Array> result = evaluate(step, operands);
      if (step.twice_if_positive && program_.factor > 0) {
        for (std::size_t c = 0; c < chunks_.size(); ++c) operands[c][0] = result[c];
        result = evaluate(step, operands);
      }
      values.push_back(result);
    }

    Observed seen;
    Observed errors;
    const auto observe = [](auto& to, auto& allowed, const Numbers& numbers) {
      Both both(numbers);
      to.push_back(std::move(both.values));
      allowed.push_back(std::move(both.errors));
    };
    std::vector<std::int32_t> ids;
    std::vector<double> seeds;
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      const std::size_t value = program_.outputs[k];
      const Array gathered = gather(values[value], program_.is_scalar(value));
      Both both(gathered.elements);
      seen.outputs.push_back({gathered.sizes, std::move(both.values)});
      errors.outputs.push_back({gathered.sizes, std::move(both.errors)});
      for (std::int64_t i = 0; i < gathered.total(); ++i) {
        ids.push_back(gathered[i].id);
        seeds.push_back(given.weight(k, static_cast<std::size_t>(i)));
      }
    }
    const std::vector<Tape::Derivative> by_entry = tape.derivatives(ids, seeds, directions_);
    const auto gradient = [&](const Number& x) -> Number {
      if (x.id < 0) return {};
      const Tape::Derivative& found = by_entry[static_cast<std::size_t>(x.id)];
      return {found.value + found.second, -1, found.error};
    };
    const double ranks = program_.way == Way::distributed ? static_cast<double>(chunks_.size()) : 1;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < gradients_[p].size(); ++i) {
        Number& sum = gradients_[p][i];
        sum = sum + gradient(variables_[p].elements[i]) / ranks;
      }
      observe(seen.gradients, errors.gradients, gradients_[p]);
    }
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      Numbers found;
      for (const Array& part : values[i]) {
        if (!program_.inputs[i].requires_grad || !recorded_) continue;
        for (const Number& x : part.elements) found.push_back(gradient(x));
      }
      observe(seen.input_gradients, errors.input_gradients, found);
    }
    keep_buffers(now.rows);
    for (const auto& of_module : buffers_) {
      seen.buffers.emplace_back();
      errors.buffers.emplace_back();
      for (const Numbers& buffer : of_module) {
        observe(seen.buffers.back(), errors.buffers.back(), buffer);
      }
    }
    // What SGD does, also to a frozen parameter that has a gradient from before.
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < parameters_[p].size(); ++i) {
        Number& own = parameters_[p][i];
        own = own - kLearningRate * gradients_[p][i];
      }
      observe(seen.parameters, errors.parameters, parameters_[p]);
    }
    seen.all_open = tape.open();
    Tape::current = nullptr;
    return {seen, errors};
  }

  // With what a penalty weights the gradients of its elements, which are those of `which` from
  // `first` on.
  Array array(const Sizes& sizes, const Numbers& values, bool variable, std::size_t which,
              std::size_t first = 0) {
    Array result(sizes);
    for (std::size_t i = 0; i < values.size(); ++i) {
      Number& element = result.elements[i] = values[i];
      if (!variable || !recorded_) continue;
      element.id = Tape::current->note_variable();
      directions_.push_back(program_.penalty ? Values{program_}.weight_of_gradient(which, first + i)
                                             : 0);
    }
    return result;
  }

  Array gather(const std::vector<Array>& parts, bool scalar) const {
    if (!scalar) {
      Array all = parts[0];
      for (std::size_t c = 1; c < parts.size(); ++c) all = cat(all, parts[c], 0);
      return all;
    }
    if (program_.devices.size() == 1) return parts[0];
    Array all({static_cast<std::int64_t>(parts.size())});
    for (std::size_t c = 0; c < parts.size(); ++c) all.elements[c] = parts[c][0];
    if (program_.scalars == Scalars::each) return all;
    Array total(Sizes{});
    const auto rows =
        static_cast<double>(std::accumulate(chunks_.begin(), chunks_.end(), std::int64_t{0}));
    for (std::size_t c = 0; c < parts.size(); ++c) {
      double weight = 1;
      if (program_.scalars == Scalars::mean) {
        weight = rows == 0 ? 1.0 / static_cast<double>(parts.size())
                           : static_cast<double>(chunks_[c]) / rows;
      }
      if (weight != 0) total[0] += all.elements[c] * weight;
    }
    return total;
  }

  void keep_buffers(std::int64_t rows) {
    const auto before = std::exchange(buffers_, new_buffers_[0]);
    if (program_.buffers != Buffers::merged || chunks_.size() == 1) return;
    for (std::size_t m = 0; m < buffers_.size(); ++m) {
      for (std::size_t b = 0; b < buffers_[m].size(); ++b) {
        if (program_.modules[m].op == Op::batch_norm && b == 2) continue;  // an integer
        for (std::size_t i = 0; i < buffers_[m][b].size(); ++i) {
          Number merged;
          for (std::size_t c = 0; c < chunks_.size(); ++c) {
            const double weight = rows == 0
                                      ? 1.0 / static_cast<double>(chunks_.size())
                                      : static_cast<double>(chunks_[c]) / static_cast<double>(rows);
            merged = merged + weight * new_buffers_[c][m][b][i];
          }
          buffers_[m][b][i] = merged;
        }
      }
    }
  }

  std::vector<Array> evaluate(const Step& step, const std::vector<std::vector<Array>>& operands) {
    if (step.op == Op::batch_norm) return batch_norm(step, operands);
    std::vector<Array> results;
    for (std::size_t c = 0; c < operands.size(); ++c) {
      results.push_back(evaluate(step, operands[c], c));
    }
    return results;
  }

  Array evaluate(const Step& step, const std::vector<Array>& from, std::size_t chunk) {
    const Array& x = from[0];
    const auto& n = step.numbers;
    switch (step.op) {
      case Op::relu:
        return each(x, [](const Number& e) { return relu(e); });
      case Op::tanh:
        return each(x, [](const Number& e) { return tanh(e); });
      case Op::sigmoid:
        return each(x, [](const Number& e) { return sigmoid(e); });
      case Op::gelu:
        return each(x, [&](const Number& e) {
          if (n[0] == 0) return e * 0.5 * (1.0 + erf(e / std::sqrt(2.0)));
          const Number inner = e + 0.044715 * e * e * e;
          return e * 0.5 * (1.0 + tanh(std::sqrt(2 / std::acos(-1.0)) * inner));
        });
      case Op::silu:
        return each(x, [](const Number& e) { return e * sigmoid(e); });
      case Op::leaky_relu:
        return each(x, [](const Number& e) { return leaky_relu(e); });
      case Op::clamp:
        return each(x, [](const Number& e) { return clamp(e, -0.5, 0.5); });
      case Op::abs:
        return each(x, [](const Number& e) { return abs(e); });
      case Op::square:
        return each(x, [](const Number& e) { return tanh(e) * tanh(e); });
      case Op::exp:
        return each(x, [](const Number& e) { return exp(tanh(e)); });
      case Op::log:
        return each(x, [](const Number& e) { return log(1.0 + tanh(e) * tanh(e)); });
      case Op::sqrt:
        return each(x, [](const Number& e) { return sqrt(1.0 + tanh(e) * tanh(e)); });
      case Op::cube:
        return each(x, [](const Number& e) { return tanh(e) * tanh(e) * tanh(e); });
      case Op::scale:
        return each(x, [&](const Number& e) {
          return e * (static_cast<double>(n[0]) / 100) + static_cast<double>(n[1]) / 100;
        });
      case Op::detach:
        return each(x, [](const Number& e) { return e.constant(); });
      case Op::clone:
      case Op::dropout:  // without effect as long as it draws nothing
        return x;
      case Op::softmax:
      case Op::log_softmax:
        return softmax(x, step.op == Op::log_softmax);
      case Op::argmax:
        return argmax(x, n[0]);
      case Op::flatten:
      case Op::divide: {
        Array y = x;
        y.sizes = step.sizes;
        y.sizes.insert(y.sizes.begin(), x.sizes[0]);
        return y;
      }
      case Op::transpose:
        return transpose(x, n[0], n[1]);
      case Op::narrow:
        return narrow(x, n[0], n[1], step.sizes[static_cast<std::size_t>(n[0] - 1)]);
      case Op::select:
        return summed(narrow(x, n[0], n[1], 1), n[0], false, false);
      case Op::sum:
      case Op::mean:
        return summed(x, n[0], n[1] != 0, step.op == Op::mean);
      case Op::var:
        return var(x, n[0], n[1] != 0, n[2]);
      case Op::extreme:
        return extreme(x, n[0], n[1] == 1);
      case Op::index_select:
        return index_select(x, n);
      case Op::max_pool:
      case Op::avg_pool:
        return pool(x, step);
      case Op::add:
        return pairs(x, from[1], [](const Number& a, const Number& b) { return a + b; });
      case Op::sub:
        return pairs(x, from[1], [](const Number& a, const Number& b) { return a - b; });
      case Op::mul:
        return pairs(x, from[1], [](const Number& a, const Number& b) { return a * b; });
      case Op::quotient:
        return pairs(x, from[1],
                     [](const Number& a, const Number& b) { return a / (1.0 + b * b); });
      case Op::maximum:
        return pairs(x, from[1], maximum);
      case Op::minimum:
        return pairs(x, from[1], [](const Number& a, const Number& b) {
          return 0.0 - maximum(0.0 - a, 0.0 - b);
        });
      case Op::twofold:
        return pairs(x, from[1], [&](const Number& a, const Number& b) {
          const Number product = a * b * 0.5;
          const Number difference = (a - b) * 0.5;
          return n[0] == 0 ? product : n[0] == 1 ? difference : product + difference;
        });
      case Op::where: {
        Array y(x.sizes);
        for (std::int64_t i = 0; i < x.total(); ++i) {
          y[i] = is_greater(x[i], from[1][i]) ? from[2][i] : from[3][i];
        }
        return y;
      }
      case Op::matmul: {
        Array y({x.size(0), x.size(1), from[1].size(1)});
        for (std::int64_t i = 0; i < x.size(0); ++i) {
          const Array part = linear(row(x, i), row(from[1], i), nullptr);
          std::copy(part.elements.begin(), part.elements.end(),
                    y.elements.begin() + i * part.total());
        }
        return y;
      }
      case Op::cat:
        return cat(x, from[1], n[0]);
      case Op::stack: {
        Array a = x;
        Array b = from[1];
        a.sizes.insert(a.sizes.begin() + n[0], 1);
        b.sizes.insert(b.sizes.begin() + n[0], 1);
        return cat(a, b, n[0]);
      }
      case Op::attention: {
        Array y(x.sizes);
        const std::int64_t part = x.size(1) * x.size(2);
        for (std::int64_t i = 0; i < x.size(0); ++i) {
          attend(x, from[1], from[2], i * part, i * part, x.size(1), x.size(1), x.size(2),
                 x.size(2), n[0] != 0, y, nullptr, 0, 0);
        }
        return y;
      }
      case Op::cross_entropy:
      case Op::mse:
      case Op::l1:
      case Op::smooth_l1:
      case Op::binary_cross_entropy:
        return loss(step, from);
      default:
        return of_module(step, from, chunk);
    }
  }

  static Array row(const Array& x, std::int64_t i) {
    Array y(Sizes(x.sizes.begin() + 1, x.sizes.end()));
    for (std::int64_t e = 0; e < y.total(); ++e) y[e] = x[i * y.total() + e];
    return y;
  }

  static Number loss(Op op, const Number& x, const Number& target) {
    const Number d = x - target;
    if (op == Op::mse) return d * d;
    if (op == Op::binary_cross_entropy) {
      const Number p = sigmoid(target);
      return 0.0 - (p * log(sigmoid(x)) + (1.0 - p) * log(1.0 - sigmoid(x)));
    }
    if (op == Op::smooth_l1 && std::abs(d.value) < 1) return 0.5 * d * d;
    const Number apart = abs(d);
    return op == Op::l1 ? apart : apart - 0.5;
  }

  static Array loss(const Step& step, const std::vector<Array>& from) {
    Array total(Sizes{});
    const Array& x = from[0];
    if (step.op != Op::cross_entropy) {
      for (std::int64_t i = 0; i < x.total(); ++i) {
        total[0] += loss(step.op, x[i], from[1][i]);
      }
      total[0] = total[0] / static_cast<double>(x.total());
      return total;
    }
    const Array logs = softmax(x, true);
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      const auto label = static_cast<std::int64_t>(from[1][i].value);
      total[0] += 0.0 - logs[i * x.size(1) + label];
    }
    total[0] = total[0] / static_cast<double>(x.size(0));
    return total;
  }

  Array of_module(const Step& step, const std::vector<Array>& from, std::size_t chunk) {
    const Module& module = program_.modules[step.module];
    const auto& n = module.numbers;
    const Array& x = from[0];
    const auto parameter = [&](std::size_t i) { return &variables_[module.parameters[i]]; };
    switch (step.op) {
      case Op::linear:
      case Op::inner:
        return linear(x, *parameter(0), n[2] != 0 ? parameter(1) : nullptr);
      case Op::sequence:
        return each(linear(x, *parameter(0), n[2] != 0 ? parameter(1) : nullptr), relu);
      case Op::conv2d:
        return conv2d(x, *parameter(0), n[7] != 0 ? parameter(1) : nullptr, step, n);
      case Op::layer_norm:
        return layer_norm(x, n[0], n[1] != 0 ? parameter(0) : nullptr,
                          n[1] != 0 && n[2] != 0 ? parameter(1) : nullptr);
      case Op::group_norm:
        return group_norm(x, n[1], n[2] != 0 ? parameter(0) : nullptr,
                          n[2] != 0 ? parameter(1) : nullptr);
      case Op::embedding: {
        Sizes sizes = x.sizes;
        sizes.push_back(n[1]);
        Array y(sizes);
        for (std::int64_t i = 0; i < x.total(); ++i) {
          const auto index = static_cast<std::int64_t>(x[i].value);
          for (std::int64_t w = 0; w < n[1]; ++w) {
            const Number& e = (*parameter(0))[index * n[1] + w];
            y[i * n[1] + w] = index == n[2] ? e.constant() : e;
          }
        }
        return y;
      }
      case Op::multihead:
        return multihead(module, x);
      case Op::affine: {
        Array y(x.sizes);
        const Numbers& shift = buffers_[step.module][0];
        for (std::int64_t i = 0; i < x.total(); ++i) {
          y[i] = x[i] * (*parameter(0))[i % n[0]] + shift[static_cast<std::size_t>(i % n[0])];
        }
        return y;
      }
      case Op::average: {
        Numbers& mean = new_buffers_[chunk][step.module][0];
        const Numbers before = mean;
        Array y(x.sizes);
        for (std::int64_t i = 0; i < x.total(); ++i) {
          y[i] = x[i] - before[static_cast<std::size_t>(i % n[0])];
        }
        for (std::size_t k = 0; k < mean.size() && train_ && x.total() > 0; ++k) {
          Number sum;
          for (std::size_t i = k; i < x.elements.size(); i += mean.size()) {
            sum += x.elements[i].constant();
          }
          const auto rows = static_cast<double>(x.elements.size() / mean.size());
          mean[k] = 0.5 * before[k] + 0.5 * sum / rows;
        }
        return y;
      }
      default:
        return recurrent_layers(module, x);
    }
  }

  Array recurrent_layers(const Module& module, const Array& input) const {
    const auto& n = module.numbers;
    const std::int64_t directions = n[3] != 0 ? 2 : 1;
    const bool bias = n[4] != 0;
    Array x = input;
    Array states({input.size(0), n[2] * directions, n[1]});
    std::size_t p = 0;
    const auto parameter = [&] { return &variables_[module.parameters[p++]]; };
    for (std::int64_t layer = 0; layer < n[2]; ++layer) {
      Array y({0});
      for (std::int64_t d = 0; d < directions; ++d) {
        const Array* w_ih = parameter();
        const Array* w_hh = parameter();
        const Array* b_ih = bias ? parameter() : nullptr;
        const Array* b_hh = bias ? parameter() : nullptr;
        const auto [output, last] = recurrent(module.op, x, *w_ih, *w_hh, b_ih, b_hh, d == 1);
        y = d == 0 ? output : cat(y, output, 2);
        for (std::int64_t i = 0; i < last.total(); ++i) {
          const std::int64_t which = layer * directions + d;
          states[(i / n[1] * n[2] * directions + which) * n[1] + i % n[1]] = last[i];
        }
      }
      x = y;
    }
    return n[5] != 0 ? states : x;
  }

  Array multihead(const Module& module, const Array& x) const {
    const auto& n = module.numbers;
    const std::int64_t embed = n[0];
    const std::int64_t size = embed / n[1];
    const std::int64_t length = x.size(1);
    std::size_t p = 0;
    const auto parameter = [&] { return &variables_[module.parameters[p++]]; };
    const Array* in_weight = parameter();
    const Array* in_bias = n[2] != 0 ? parameter() : nullptr;
    const Array* out_weight = parameter();
    const Array* out_bias = n[2] != 0 ? parameter() : nullptr;
    const Array projected = linear(x, *in_weight, in_bias);
    Array joined(x.sizes);
    Array weights({x.size(0), length, length});
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      for (std::int64_t head = 0; head < n[1]; ++head) {
        Array part({length, 3 * size});
        for (std::int64_t t = 0; t < length; ++t) {
          for (std::int64_t s = 0; s < 3 * size; ++s) {
            const std::int64_t column = s / size * embed + head * size + s % size;
            part[t * 3 * size + s] = projected[(i * length + t) * 3 * embed + column];
          }
        }
        const Array q = narrow(part, 1, 0, size);
        const Array k = narrow(part, 1, size, size);
        const Array v = narrow(part, 1, 2 * size, size);
        Array out({length, size});
        attend(q, k, v, 0, 0, length, length, size, size, n[3] != 0, out, &weights,
               i * length * length, 1.0 / static_cast<double>(n[1]));
        for (std::int64_t t = 0; t < length; ++t) {
          for (std::int64_t s = 0; s < size; ++s) {
            joined[(i * length + t) * embed + head * size + s] = out[t * size + s];
          }
        }
      }
    }
    return n[4] != 0 ? weights : linear(joined, *out_weight, out_bias);
  }

  // Of all chunks, since their statistics may be common ones.
  std::vector<Array> batch_norm(const Step& step, const std::vector<std::vector<Array>>& operands) {
    const Module& module = program_.modules[step.module];
    const auto& n = module.numbers;
    const bool kept = n[3] != 0;
    const bool own = train_ || !kept;  // statistics of the batch, and not the running ones
    // As torch's, SyncBatchNorm takes common statistics in training alone.
    const bool together =
        program_.buffers == Buffers::synchronized && (train_ || program_.way != Way::distributed);
    std::vector<Array> results;
    for (std::size_t c = 0; c < operands.size(); ++c) results.push_back(operands[c][0]);
    const std::int64_t features = n[0];
    const auto places = [&](const Array& x) { return x.total() / features; };
    const auto element = [&](const Array& x, std::int64_t f, std::int64_t i) {
      const std::int64_t after = x.after(1);
      return (i / after * features + f) * after + i % after;
    };
    for (std::size_t c = 0; c < operands.size(); ++c) {
      if (!own) break;
      std::int64_t all = 0;
      for (std::size_t d = 0; d < operands.size(); ++d) {
        if (together || d == c) all += places(operands[d][0]);
      }
      if (all == 1) throw Refused("one value per channel");
    }
    for (std::int64_t f = 0; f < features; ++f) {
      for (std::size_t c = 0; c < operands.size(); ++c) {
        std::vector<Numbers>& running = new_buffers_[c][step.module];
        const auto at = static_cast<std::size_t>(f);
        Number mean = kept ? running[0][at] : 0;
        Number var = kept ? running[1][at] : 0;
        if (own) {
          Numbers values;
          for (std::size_t d = 0; d < operands.size(); ++d) {
            const Array& x = operands[d][0];
            if (!together && d != c) continue;
            for (std::int64_t i = 0; i < places(x); ++i) values.push_back(x[element(x, f, i)]);
          }
          const auto total = static_cast<double>(values.size());
          mean = var = 0;
          for (const Number& value : values) mean += value / total;
          for (const Number& value : values) var += (value - mean) * (value - mean) / total;
          if (train_ && kept) {
            const auto move = [](Number& to, const Number& now) {
              to = to + 0.1 * (now.constant() - to);
            };
            if (!values.empty()) {
              move(running[0][at], mean);
              move(running[1][at], var * total / (total - 1));
            }
            if (f == 0) running[2][0].value += 1;
          }
        }
        const Array& x = operands[c][0];
        for (std::int64_t i = 0; i < places(x); ++i) {
          Number y = (x[element(x, f, i)] - mean) / sqrt(var + 1e-5);
          if (n[2] != 0) {
            y = y * variables_[module.parameters[0]][f] + variables_[module.parameters[1]][f];
          }
          results[c][element(x, f, i)] = y;
        }
      }
    }
    return results;
  }

  const Program& program_;
  // Constants all, from one round to the next.
  std::vector<Numbers> parameters_;
  std::vector<Numbers> gradients_;             // zeros where there is none
  std::vector<std::vector<Numbers>> buffers_;  // by module
  bool train_ = true;
  bool recorded_ = true;
  std::vector<bool> frozen_;
  std::vector<std::int64_t> chunks_;
  std::vector<Array> variables_;  // of this round, as all below
  std::vector<double> directions_;
  std::vector<std::vector<std::vector<Numbers>>> new_buffers_;  // by chunk and module
};

}  // namespace lockstep::testing::programs
