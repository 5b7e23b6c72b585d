// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/embedding.hpp>
#include <lockstep/nn/group_norm.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/multihead_attention.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/attention.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/gelu.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/max.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "parallel/programs/program.hpp"
#include "parallel/property_support.hpp"
#include "support/devices.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

// A program as a module of the library.
namespace lockstep::testing::programs {

// A structure that is made up at run time.
struct Tree {
  std::variant<std::monostate, Tensor, double, std::string, std::vector<Tree>,
               std::map<std::string, Tree>>
      value;
};

// A tree whose tensors, in order, are these; there may be other things between them.
inline Tree nest(property::Random& random, const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1 && random.one_in(2)) return {tensors[0]};
  std::vector<Tree> trees;
  for (std::size_t i = 0; i < tensors.size();) {
    if (random.one_in(5)) trees.push_back({random.real()});
    if (random.one_in(8)) trees.push_back({Tensor()});
    if (random.one_in(8)) trees.push_back({std::vector<Tree>()});
    if (random.one_in(8)) trees.push_back({std::string("text")});
    if (random.one_in(3) && i > 0) {
      trees.push_back(
          nest(random, {tensors.begin() + static_cast<std::ptrdiff_t>(i), tensors.end()}));
      break;
    }
    trees.push_back({tensors[i++]});
  }
  if (random.one_in(2)) return {trees};
  std::map<std::string, Tree> map;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    map[std::string(1, static_cast<char>('a' + i))] = trees[i];
  }
  return {map};
}

inline void collect(const Tree& tree, std::vector<Tensor>& tensors) {
  if (const auto* tensor = std::get_if<Tensor>(&tree.value)) {
    if (tensor->defined()) tensors.push_back(*tensor);
  } else if (const auto* list = std::get_if<std::vector<Tree>>(&tree.value)) {
    for (const Tree& element : *list) collect(element, tensors);
  } else if (const auto* map = std::get_if<std::map<std::string, Tree>>(&tree.value)) {
    for (const auto& [key, element] : *map) collect(element, tensors);
  }
}

// x³, with a derivative of its own.
struct Cube {
  static constexpr const char* name = "cube";
  Saved x;

  Tensor forward(const Tensor& input) {
    x = input;
    return input * input * input;
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    return grad * square(saved(x)) * 3.0;
  }
};

// xy and x − y, times a factor, or the one or the other, from one operation that has both.
struct Twofold {
  static constexpr const char* name = "twofold";
  double factor;
  Saved x;
  Saved y;

  std::vector<Tensor> forward(const std::vector<Tensor>& operands) {
    x = operands[0];
    y = operands[1];
    return {operands[0] * operands[1] * factor, (operands[0] - operands[1]) * factor};
  }
  // Results that are not used have no gradients.
  std::vector<Tensor> backward(const Backward& saved, const std::vector<Tensor>& grads) const {
    std::vector<Tensor> result(2);
    if (grads[0].defined()) {
      const Tensor grad = grads[0] * factor;
      result = {grad * saved(y), grad * saved(x)};
    }
    if (grads[1].defined()) {
      const Tensor grad = grads[1] * factor;
      result[0] = result[0].defined() ? result[0] + grad : grad;
      result[1] = result[1].defined() ? result[1] - grad : -grad;
    }
    return result;
  }
};

struct Affine {
  lockstep::Parameter factor;
  Buffer shift;
};

struct Average {
  Buffer mean;
  bool training = true;
};

using Layer = std::variant<nn::Linear, nn::Conv2d, nn::BatchNorm1d, nn::BatchNorm2d, nn::LayerNorm,
                           nn::GroupNorm, nn::Embedding, nn::MultiheadAttention, nn::RNN, nn::LSTM,
                           nn::GRU, nn::Dropout, DataParallel<nn::Linear>,
                           nn::Sequential<nn::Linear, nn::ReLU>, Affine, Average>;

inline Shape shape(const Sizes& sizes) { return Shape(std::span<const std::int64_t>(sizes)); }

// Spoils what the library computes, so that a test can see that this is noticed.
using Fault = void (*)(const Step& step, Tensor& result);

inline Dtype dtype_of(Type type) {
  static constexpr Dtype dtypes[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16};
  return dtypes[static_cast<std::size_t>(type)];
}

// The module of a program.
struct Net {
  std::vector<Layer> layers;
  const Program* program;
  Fault fault = nullptr;

  Tree forward(const Tree& input, double factor) {
    std::vector<Tensor> values;
    collect(input, values);
    for (Tensor& value : values) value = rows_first(value);
    const auto& half = program->autocast;
    check<Error>(
        is_autocast_enabled() == half.has_value() && (!half || autocast_dtype() == dtype_of(*half)),
        "autocast of the caller is not that of the replica");
    for (const Step& step : program->steps) {
      std::vector<Tensor> from;
      for (const std::size_t value : step.from) from.push_back(values[value]);
      if (half && wants_one_dtype(step)) {
        for (Tensor& value : from) {
          if (is_floating_point(value.dtype())) value = value.to(Dtype::f32);
        }
      }
      Tensor result = compute_half(step, from);
      if (step.twice_if_positive && factor > 0) {
        from[0] = result;
        result = compute_half(step, from);
      }
      if (fault) fault(step, result);
      values.push_back(result);
    }
    std::vector<Tensor> outputs;
    for (const std::size_t value : program->outputs) outputs.push_back(rows_first(values[value]));
    property::Random random(program->seed % 1000);
    return nest(random, outputs);
  }

 private:
  // Operations that autocast leaves alone.
  static bool wants_one_dtype(const Step& step) {
    return (step.op >= Op::quotient && step.op <= Op::attention && step.op != Op::matmul) ||
           (step.op >= Op::batch_norm && step.op <= Op::average);
  }

  // The other way round it is the same.
  Tensor rows_first(const Tensor& x) const {
    return program->dim == 0 || x.dim() < 2 ? x : transpose(x, 0, program->dim);
  }

  // What refuses half precision is given f32, and gives half precision to others.
  Tensor compute_half(const Step& step, std::vector<Tensor> from) {
    if (program->type <= Type::f32 || !refuses_half(step.op)) return compute(step, from);
    for (Tensor& value : from) {
      if (is_floating_point(value.dtype())) value = value.to(Dtype::f32);
    }
    return compute(step, from).to(dtype_of(program->type));
  }

  Tensor compute(const Step& step, const std::vector<Tensor>& from) {
    const Tensor& x = from[0];
    const auto& n = step.numbers;
    switch (step.op) {
      case Op::relu:
        return relu(x);
      case Op::tanh:
        return tanh(x);
      case Op::sigmoid:
        return sigmoid(x);
      case Op::gelu:
        return gelu(x, n[0] == 0 ? GeluApproximation::none : GeluApproximation::tanh);
      case Op::silu:
        return silu(x);
      case Op::leaky_relu:
        return leaky_relu(x);
      case Op::clamp:
        return clamp(x, -0.5, 0.5);
      case Op::abs:
        return abs(x);
      case Op::square:
        return square(tanh(x));
      case Op::exp:
        return exp(tanh(x));
      case Op::log:
        return log(1.0 + square(tanh(x)));
      case Op::sqrt:
        return sqrt(1.0 + square(tanh(x)));
      case Op::cube:
        return apply(Cube{}, tanh(x));
      case Op::scale:
        return x * (static_cast<double>(n[0]) / 100) + static_cast<double>(n[1]) / 100;
      case Op::detach:
        return x.detach();
      case Op::clone:
        return x.clone();
      case Op::softmax:
        return softmax(x, -1);
      case Op::log_softmax:
        return log_softmax(x, -1);
      case Op::argmax:
        return argmax(x, n[0]);
      case Op::flatten:
        return flatten(x, 1);
      case Op::divide: {
        Sizes sizes(x.sizes().begin(), x.sizes().end());
        sizes.back() /= n[0];
        sizes.insert(sizes.end() - 1, n[0]);
        return reshape(x, shape(sizes));
      }
      case Op::transpose:
        return transpose(x, n[0], n[1]);
      case Op::narrow:
        return narrow(x, n[0], n[1], step.sizes[static_cast<std::size_t>(n[0] - 1)]);
      case Op::select:
        return select(x, n[0], n[1]);
      case Op::sum:
        return sum(x, {n[0]}, n[1] != 0);
      case Op::mean:
        return mean(x, {n[0]}, n[1] != 0);
      case Op::var:
        return var(x, {n[0]}, static_cast<double>(n[2]), n[1] != 0);
      case Op::extreme:
        if (n[1] == 0) return max(x, n[0]).values;
        if (n[1] == 1) return min(x, n[0]).values;
        return gather(x, n[0], argmax(x, n[0], true)).squeeze(n[0]);
      case Op::index_select:
        return index_select(x, n[0],
                            from_values(std::vector<std::int64_t>(n.begin() + 1, n.end()),
                                        {static_cast<std::int64_t>(n.size()) - 1}, x.device()));
      case Op::max_pool:
        return max_pool2d(x, n[0], n[1], n[2]);
      case Op::avg_pool:
        return avg_pool2d(x, n[0], n[1], n[2], n[3] != 0);
      case Op::add:
        return x + from[1];
      case Op::sub:
        return x - from[1];
      case Op::mul:
        return x * from[1];
      case Op::quotient:
        return x / (1.0 + square(from[1]));
      case Op::maximum:
        return maximum(x, from[1]);
      case Op::minimum:
        return minimum(x, from[1]);
      case Op::twofold: {
        const std::vector<Tensor> both = lockstep::apply(Twofold{0.5, {}, {}}, from);
        return n[0] == 2 ? both[0] + both[1] : both[static_cast<std::size_t>(n[0])];
      }
      case Op::where:
        return where(gt(x, from[1]), from[2], from[3]);
      case Op::matmul:
        return matmul(x, transpose(from[1], 1, 2));
      case Op::cat:
        return cat({x, from[1]}, n[0]);
      case Op::stack:
        return stack({x, from[1]}, n[0]);
      case Op::attention:
        return scaled_dot_product_attention(x, from[1], from[2], {.is_causal = n[0] != 0});
      case Op::cross_entropy:
        return cross_entropy(x, from[1]);
      case Op::mse:
        return mse_loss(x, from[1]);
      case Op::l1:
        return l1_loss(x, from[1]);
      case Op::smooth_l1:
        return smooth_l1_loss(x, from[1]);
      case Op::binary_cross_entropy:
        return binary_cross_entropy_with_logits(x, sigmoid(from[1]));
      default:
        return std::visit([&](auto& layer) { return run(layer, step, x); }, layers[step.module]);
    }
  }

  template <class L>
  Tensor run(L& layer, const Step& step, const Tensor& x) {
    const auto& n = program->modules[step.module].numbers;
    if constexpr (std::is_same_v<L, nn::MultiheadAttention>) {
      const auto [y, weights] = layer(x, x, x, {.need_weights = n[4] != 0, .is_causal = n[3] != 0});
      return n[4] != 0 ? weights : y;
    } else if constexpr (std::is_base_of_v<detail::RecurrentLayers, L>) {
      const auto [y, state] = layer(x);
      if (n[5] == 0) return y;
      if constexpr (std::is_same_v<L, nn::LSTM>) {
        return transpose(std::get<0>(state), 0, 1);
      } else {
        return transpose(state, 0, 1);
      }
    } else if constexpr (std::is_same_v<L, Affine>) {
      return x * layer.factor + layer.shift;
    } else if constexpr (std::is_same_v<L, Average>) {
      const Tensor y = x - layer.mean;
      if (layer.training && x.numel() > 0) {
        const NoGradGuard no_grad;
        Shape dims;
        for (std::int64_t d = 0; d + 1 < x.dim(); ++d) dims.push_back(d);
        // The difference above may be recorded, and needs the buffer as it is.
        layer.mean.copy_(layer.mean * 0.5 + mean(x, dims) * 0.5);
      }
      return y;
    } else {
      return layer(x);
    }
  }
};

}  // namespace lockstep::testing::programs
