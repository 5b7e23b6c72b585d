// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Two types that have nothing in common with Tensor, but can be leaves of nested arguments.
namespace lockstep::testing {

// Numbers in up to two dimensions with a tape of their own. Its device is nothing but a label.
class Toy {
 public:
  using Values = std::vector<double>;
  using Dims = std::vector<std::int64_t>;
  // Called with a result's gradient, adds to those of the inputs.
  using BackwardFunction = std::function<void(const Values& grad)>;

  Toy() = default;
  Toy(Values values, Dims dims, Device device = {})
      : Toy(std::move(values), dims, device, {}, {}) {}
  // The result of an operation.
  Toy(Values values, Dims dims, Device device, std::vector<Toy> inputs, BackwardFunction backward)
      : state_(std::make_shared<State>(State{std::move(values),
                                             std::move(dims),
                                             device,
                                             {},
                                             std::move(inputs),
                                             std::move(backward)})) {
    std::size_t count = 1;
    for (const std::int64_t size : state_->dims) count *= static_cast<std::size_t>(size);
    check<ShapeError>(count == state_->values.size(), "Toy: expected ", count, " values, got ",
                      state_->values.size());
    state_->grad.assign(count, 0.0);
  }

  bool defined() const { return state_ != nullptr; }
  const Values& values() const { return state_->values; }
  const Dims& dims() const { return state_->dims; }
  Device device() const { return state_->device; }
  const Values& grad() const { return state_->grad; }

  void add_to_grad(std::size_t element, double value) const { state_->grad[element] += value; }

  // Adds to the gradients of everything that this was made from. Once for each graph.
  void backward(const Values& gradient) const {
    check<ShapeError>(gradient.size() == values().size(), "Toy: gradient of another size");
    std::vector<const Toy*> order;
    std::set<const State*> seen;
    collect(order, seen);
    for (std::size_t i = 0; i < gradient.size(); ++i) add_to_grad(i, gradient[i]);
    for (auto toy = order.rbegin(); toy != order.rend(); ++toy) {
      if ((*toy)->state_->backward) (*toy)->state_->backward((*toy)->grad());
    }
  }

 private:
  struct State {
    Values values;
    Dims dims;
    Device device;
    Values grad;
    std::vector<Toy> inputs;
    BackwardFunction backward;
  };

  // Inputs before results.
  void collect(std::vector<const Toy*>& order, std::set<const State*>& seen) const {
    if (!seen.insert(state_.get()).second) return;
    for (const Toy& input : state_->inputs) input.collect(order, seen);
    order.push_back(this);
  }

  std::shared_ptr<State> state_;
};

// One term of a linear operation: result[to] += weight · inputs[input][from].
struct Term {
  std::size_t to;
  std::size_t input;
  std::size_t from;
  double weight = 1;
};

inline Toy linear_operation(const std::vector<Toy>& inputs, const std::vector<Term>& terms,
                            const Toy::Dims& dims, Device device) {
  std::size_t count = 1;
  for (const std::int64_t size : dims) count *= static_cast<std::size_t>(size);
  Toy::Values values(count, 0.0);
  for (const Term& t : terms) values[t.to] += t.weight * inputs[t.input].values()[t.from];
  return Toy(std::move(values), dims, device, inputs, [inputs, terms](const Toy::Values& grad) {
    for (const Term& t : terms) inputs[t.input].add_to_grad(t.from, t.weight * grad[t.to]);
  });
}

inline Toy operator*(const Toy& a, const Toy& b) {
  check<ShapeError>(a.dims() == b.dims(), "Toy: operands of other shapes");
  check<DeviceError>(a.device() == b.device(), "Toy: operands on ", a.device(), " and ",
                     b.device());
  Toy::Values values = a.values();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= b.values()[i];
  return Toy(std::move(values), a.dims(), a.device(), {a, b}, [a, b](const Toy::Values& grad) {
    for (std::size_t i = 0; i < grad.size(); ++i) {
      a.add_to_grad(i, grad[i] * b.values()[i]);
      b.add_to_grad(i, grad[i] * a.values()[i]);
    }
  });
}

inline Toy mean(const Toy& toy) {
  std::vector<Term> terms;
  const std::size_t count = toy.values().size();
  for (std::size_t i = 0; i < count; ++i)
    terms.push_back({0, 0, i, 1 / static_cast<double>(count)});
  return linear_operation({toy}, terms, {}, toy.device());
}

// Lines of text that are divided like the rows of a tensor. Unlike them they cannot be added up.
struct Lines {
  std::vector<std::string> lines;
  bool for_all = false;  // not divided
  Device device = {};
};

}  // namespace lockstep::testing

namespace lockstep {

template <>
struct tensor_traits<testing::Toy> {
  using Toy = testing::Toy;

  static bool defined(const Toy& toy) { return toy.defined(); }
  static Device device(const Toy& toy) { return toy.device(); }
  static std::int64_t dim(const Toy& toy) { return static_cast<std::int64_t>(toy.dims().size()); }
  static std::int64_t size(const Toy& toy, std::int64_t dim) { return toy.dims()[wrap(toy, dim)]; }

  static std::vector<Toy> scatter(const Toy& toy, const std::vector<Device>& devices,
                                  const std::vector<std::int64_t>& sizes, std::int64_t dim) {
    std::vector<Toy> chunks;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Toy::Dims dims = toy.dims();
      dims[wrap(toy, dim)] = sizes[i];
      std::vector<testing::Term> terms;
      for_each_place(dims, wrap(toy, dim), toy.dims(), start,
                     [&](std::size_t part, std::size_t whole) {
                       terms.push_back({part, 0, whole});
                     });
      chunks.push_back(testing::linear_operation({toy}, terms, dims, devices[i]));
      start += sizes[i];
    }
    return chunks;
  }

  static std::vector<Toy> broadcast(const Toy& toy, const std::vector<Device>& devices) {
    std::vector<testing::Term> terms;
    for (std::size_t i = 0; i < toy.values().size(); ++i) terms.push_back({i, 0, i});
    std::vector<Toy> copies;
    for (const Device device : devices) {
      copies.push_back(testing::linear_operation({toy}, terms, toy.dims(), device));
    }
    return copies;
  }

  static Toy gather(const std::vector<Toy>& toys, Device device, std::int64_t dim) {
    const bool scalars = toys[0].dims().empty();
    const std::size_t along = scalars ? 0 : wrap(toys[0], dim);
    Toy::Dims dims = scalars ? Toy::Dims{1} : toys[0].dims();
    dims[along] = 0;
    for (const Toy& toy : toys) dims[along] += scalars ? 1 : toy.dims()[along];
    std::vector<testing::Term> terms;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < toys.size(); ++i) {
      const Toy::Dims part_dims = scalars ? Toy::Dims{1} : toys[i].dims();
      for_each_place(part_dims, along, dims, start, [&](std::size_t part, std::size_t whole) {
        terms.push_back({whole, i, part});
      });
      start += part_dims[along];
    }
    return testing::linear_operation(toys, terms, dims, device);
  }

  static Toy weighted_sum(const std::vector<Toy>& scalars, const std::vector<double>& weights,
                          Device device) {
    check<ValueError>(scalars.size() == weights.size(), "Toy: ", weights.size(), " weights for ",
                      scalars.size(), " scalars");
    std::vector<testing::Term> terms;
    for (std::size_t i = 0; i < scalars.size(); ++i) terms.push_back({0, i, 0, weights[i]});
    return testing::linear_operation(scalars, terms, {}, device);
  }

 private:
  static std::size_t wrap(const Toy& toy, std::int64_t dim) {
    const auto count = static_cast<std::int64_t>(toy.dims().size());
    check<IndexError>(dim >= -count && dim < count, "Toy: no dimension ", dim);
    return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
  }

  // Calls visit(element of the part, element of the whole) for every element of a part that begins
  // at `start` along `dim`.
  template <class Visit>
  static void for_each_place(const Toy::Dims& part, std::size_t dim, const Toy::Dims& whole,
                             std::int64_t start, const Visit& visit) {
    const std::int64_t columns = part.size() == 2 ? part[1] : 1;
    const std::int64_t whole_columns = whole.size() == 2 ? whole[1] : 1;
    for (std::int64_t row = 0; row < part[0]; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t r = row + (dim == 0 ? start : 0);
        const std::int64_t c = column + (dim == 1 ? start : 0);
        visit(static_cast<std::size_t>(row * columns + column),
              static_cast<std::size_t>(r * whole_columns + c));
      }
    }
  }
};

template <>
struct tensor_traits<testing::Lines> {
  using Lines = testing::Lines;

  static bool defined(const Lines&) { return true; }
  static Device device(const Lines& lines) { return lines.device; }
  static std::int64_t dim(const Lines& lines) { return lines.for_all ? 0 : 1; }
  static std::int64_t size(const Lines& lines, std::int64_t /*dim*/) {
    return static_cast<std::int64_t>(lines.lines.size());
  }
  static std::vector<Lines> scatter(const Lines& lines, const std::vector<Device>& devices,
                                    const std::vector<std::int64_t>& sizes, std::int64_t /*dim*/) {
    std::vector<Lines> parts;
    auto next = lines.lines.begin();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      parts.push_back({{next, next + sizes[i]}, false, devices[i]});
      next += sizes[i];
    }
    return parts;
  }
  static std::vector<Lines> broadcast(const Lines& lines, const std::vector<Device>& devices) {
    std::vector<Lines> copies;
    for (const Device device : devices) copies.push_back({lines.lines, lines.for_all, device});
    return copies;
  }
  static Lines gather(const std::vector<Lines>& parts, Device device, std::int64_t /*dim*/) {
    Lines whole{{}, false, device};
    for (const Lines& part : parts) {
      whole.lines.insert(whole.lines.end(), part.lines.begin(), part.lines.end());
    }
    return whole;
  }
};

}  // namespace lockstep
