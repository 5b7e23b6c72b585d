// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/program.hpp"
#include "parallel/property_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

// Draws a Program.
namespace lockstep::testing::programs {

class Generator {
 public:
  explicit Generator(property::Random& random) : random_(random) {}

  Program draw() {
    program_ = {};
    program_.seed = random_.next();
    draw_type();
    program_.factor = random_.real();
    draw_way();
    for (int n = random_.between(1, 3); n > 0; --n) add_input();
    for (int n = random_.between(1, 9); n > 0; --n) {
      for (int tries = 0; tries < 20 && !add_step(); ++tries) {
      }
    }
    draw_outputs();
    draw_rounds();
    if (program_.penalty) {
      for (Module& module : program_.modules) {
        if (module.op == Op::embedding) module.numbers[3] = 0;  // a sparse one has no derivative
      }
    }
    const auto trained = [](const Parameter& parameter) { return !parameter.frozen; };
    if (program_.way == Way::distributed &&
        std::none_of(program_.parameters.begin(), program_.parameters.end(), trained)) {
      program_.way = Way::wrapper;  // the other one wants something to train
    }
    if (program_.way != Way::distributed) return program_;
    separate_sparse();
    // A rank's SyncBatchNorm wants a module on one device.
    const auto inner = [](const Module& module) { return module.op == Op::inner; };
    if (std::any_of(program_.modules.begin(), program_.modules.end(), inner)) {
      program_.buffers = Buffers::first;
    }
    return program_;
  }

 private:
  using Numbers = std::vector<std::int64_t>;

  std::int64_t number(std::int64_t low, std::int64_t high) { return random_.between(low, high); }
  std::int64_t flag() { return number(0, 1); }

  void draw_type() {
    switch (random_.between(0, 11)) {
      case 0:
      case 1:
        program_.type = Type::f32;
        break;
      case 2:
        program_.type = Type::f16;
        break;
      case 3:
        program_.type = Type::bf16;
        break;
      case 4:
        program_.type = Type::f32;
        program_.autocast = random_.one_in(2) ? Type::f16 : Type::bf16;
        break;
      case 5:
        program_.penalty = true;
        break;
      default:
        break;
    }
  }

  void draw_way() {
    for (int n = random_.between(1, 5); n > 0; --n) {
      program_.devices.push_back(random_.between<std::size_t>(0, 5));
    }
    program_.output_device = random_.between<std::size_t>(0, 5);
    // DistributedDataParallel refuses create_graph.
    const int ways = program_.penalty ? 3 : 4;
    if (random_.one_in(2)) program_.way = static_cast<Way>(random_.between(1, ways));
    if (random_.one_in(4)) program_.dim = random_.one_in(2) ? 1 : -1;
    program_.splitting = static_cast<Splitting>(random_.between(0, 3));
    if (program_.splitting == Splitting::sizes || program_.splitting == Splitting::weights) {
      const bool sizes = program_.splitting == Splitting::sizes;
      for (std::size_t i = 0; i < program_.devices.size(); ++i) {
        program_.chunks.push_back(sizes ? number(0, 3) : number(1, 4));
      }
    } else if (random_.one_in(4)) {
      program_.at_least = number(1, 3);
    }
    if (program_.way == Way::distributed) {
      if (random_.one_in(3)) program_.buffers = Buffers::synchronized;
      program_.small_buckets = random_.one_in(2);
    } else if (program_.way != Way::primitives) {
      program_.scalars = static_cast<Scalars>(random_.between(0, 2));
      program_.buffers = static_cast<Buffers>(random_.between(0, 2));
    }
    train_ = !random_.one_in(4);
  }

  std::size_t add_input(std::optional<Sizes> sizes = {}, std::int64_t classes = 0) {
    const bool labels = classes > 0;
    if (!sizes) {
      switch (random_.between(0, 5)) {
        case 0:
          sizes = Sizes{number(1, 3), number(3, 6), number(3, 6)};
          break;
        case 1:
        case 2:
          sizes = Sizes{number(1, 4), number(1, 5)};
          break;
        case 3:
          classes = number(2, 6);
          sizes = least_rank() == 1 || random_.one_in(2) ? Sizes{number(1, 4)} : Sizes{};
          break;
        default:
          sizes = Sizes{number(1, 6)};
      }
    }
    const Input input{*sizes, classes, classes > 0 && !labels && random_.one_in(3),
                      classes == 0 && random_.one_in(2), random_.one_in(2)};
    // The steps' values come after the inputs': those that are there move up.
    const std::size_t place = program_.inputs.size();
    program_.inputs.push_back(input);
    for (Step& step : program_.steps) {
      for (std::size_t& value : step.from) value += value >= place ? 1 : 0;
    }
    return place;
  }
  // Values whose rows are not the first dimension have another one in front.
  std::size_t least_rank() const { return program_.dim == 0 ? 0 : 1; }

  // A value that is no index, of `rank` dimensions besides the rows, if there is one.
  std::optional<std::size_t> value(std::optional<std::size_t> rank = {},
                                   const Sizes* like = nullptr) {
    std::vector<std::size_t> fitting;
    for (std::size_t v = 0; v < program_.values(); ++v) {
      if (program_.is_index(v) || program_.is_scalar(v)) continue;
      if (rank && program_.sizes_of(v).size() != *rank) continue;
      if (like && program_.sizes_of(v) != *like) continue;
      fitting.push_back(v);
      if (v + 3 >= program_.values()) fitting.insert(fitting.end(), 3, v);  // rather the last ones
    }
    if (fitting.empty()) return {};
    return fitting[random_.between<std::size_t>(0, fitting.size() - 1)];
  }

  bool add(Op op, std::vector<std::size_t> from, Numbers numbers, Sizes sizes) {
    if (count(sizes) > 150 || count(sizes) == 0) return false;
    Step step{op, std::move(from), std::move(numbers), std::move(sizes)};
    step.twice_if_positive =
        op <= Op::log_softmax && op != Op::detach && op != Op::clone && random_.one_in(6);
    program_.steps.push_back(std::move(step));
    return true;
  }

  bool add_step() {
    switch (random_.between(0, 9)) {
      case 0:
      case 1:
      case 2:
        return add_elementwise();
      case 3:
      case 4:
        return add_shape();
      case 5:
        return add_pair();
      case 6:
        return random_.one_in(3) ? add_loss() : add_pair();
      default:
        return add_module();
    }
  }

  bool add_elementwise() {
    const auto x = value();
    if (!x) return false;
    const Op op = static_cast<Op>(random_.between(0, static_cast<int>(Op::log_softmax)));
    const Sizes sizes = program_.sizes_of(*x);
    if (op >= Op::softmax && sizes.empty()) return false;
    Numbers numbers;
    if (op == Op::scale) numbers = {number(-150, 150), number(-50, 50)};
    if (op == Op::gelu) numbers = {flag()};
    return add(op, {*x}, numbers, sizes);
  }

  static void take_out(Sizes& sizes, std::size_t d, bool keep) {
    sizes[d] = 1;
    if (!keep) sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
  }

  bool add_shape() {
    const auto x = value();
    if (!x) return false;
    Sizes sizes = program_.sizes_of(*x);
    if (sizes.empty()) return false;
    const auto d = random_.between<std::size_t>(0, sizes.size() - 1);
    const auto dim = static_cast<std::int64_t>(d) + 1;
    switch (random_.between(0, 11)) {
      case 9: {
        if (sizes[d] < 2) return false;
        const std::int64_t keep = flag();
        take_out(sizes, d, keep != 0);
        return add(Op::var, {*x}, {dim, keep, flag()}, sizes);
      }
      case 10:
        take_out(sizes, d, false);
        return add(Op::extreme, {*x}, {dim, number(0, 2)}, sizes);
      case 11: {
        Numbers numbers{dim};
        for (std::int64_t n = number(1, 4); n > 0; --n) numbers.push_back(number(0, sizes[d] - 1));
        sizes[d] = static_cast<std::int64_t>(numbers.size()) - 1;
        return add(Op::index_select, {*x}, numbers, sizes);
      }
      case 8:
        if (program_.is_half()) return false;  // its roundings would decide
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
        return add(Op::argmax, {*x}, {dim}, sizes);
      case 0:
        return add(Op::flatten, {*x}, {}, {count(sizes)});
      case 1: {
        const std::int64_t first = sizes.back() % 2 == 0 ? 2 : 3;
        if (sizes.size() > 2 || sizes.back() % first != 0) return false;
        sizes.back() /= first;
        sizes.insert(sizes.end() - 1, first);
        return add(Op::divide, {*x}, {first}, sizes);
      }
      case 2: {
        const auto e = random_.between<std::size_t>(0, sizes.size() - 1);
        if (d == e) return false;
        std::swap(sizes[d], sizes[e]);
        return add(Op::transpose, {*x}, {dim, static_cast<std::int64_t>(e) + 1}, sizes);
      }
      case 3: {
        const std::int64_t length = number(1, sizes[d]);
        const std::int64_t start = number(0, sizes[d] - length);
        sizes[d] = length;
        return add(Op::narrow, {*x}, {dim, start}, sizes);
      }
      case 4: {
        const std::int64_t index = number(0, sizes[d] - 1);
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
        return add(Op::select, {*x}, {dim, index}, sizes);
      }
      case 5:
      case 6: {
        const std::int64_t keep = flag();
        take_out(sizes, d, keep != 0);
        return add(random_.one_in(2) ? Op::sum : Op::mean, {*x}, {dim, keep}, sizes);
      }
      default: {
        const auto image = value(3);
        if (!image) return false;
        sizes = program_.sizes_of(*image);
        const bool max = random_.one_in(2);
        const std::int64_t kernel = number(1, 3);
        const std::int64_t stride = number(1, 2);
        const std::int64_t padding = number(0, kernel / 2);
        for (std::size_t k = 1; k < 3; ++k) {
          if (sizes[k] + 2 * padding < kernel) return false;
          sizes[k] = (sizes[k] + 2 * padding - kernel) / stride + 1;
        }
        return add(max ? Op::max_pool : Op::avg_pool, {*image}, {kernel, stride, padding, flag()},
                   sizes);
      }
    }
  }

  bool add_pair() {
    const auto x = value();
    if (!x) return false;
    Sizes sizes = program_.sizes_of(*x);
    const auto y = value({}, &sizes);
    const Op op = static_cast<Op>(
        random_.between(static_cast<int>(Op::add), static_cast<int>(Op::attention)));
    if (op == Op::where) {
      if (program_.is_half()) return false;  // its roundings would decide
      return add(op, {*x, *y, *value({}, &sizes), *value({}, &sizes)}, {}, sizes);
    }
    if (op == Op::twofold) return add(op, {*x, *y}, {number(0, 2)}, sizes);
    if (op < Op::matmul) return add(op, {*x, *y}, {}, sizes);
    if (op == Op::matmul || op == Op::attention) {
      if (sizes.size() != 2) return false;
      if (op == Op::attention) return add(op, {*x, *y, *value({}, &sizes)}, {flag()}, sizes);
      return add(op, {*x, *y}, {}, {sizes[0], sizes[0]});
    }
    const auto rank = static_cast<std::int64_t>(sizes.size());
    if (op == Op::stack) {
      if (rank > 2) return false;
      const std::int64_t dim = number(1, rank + 1);
      sizes.insert(sizes.begin() + (dim - 1), 2);
      return add(op, {*x, *y}, {dim}, sizes);
    }
    if (rank == 0) return false;
    const std::int64_t dim = number(1, rank);
    sizes[static_cast<std::size_t>(dim - 1)] *= 2;
    return add(op, {*x, *y}, {dim}, sizes);
  }

  bool add_loss() {
    const auto x = value();
    if (!x) return false;
    const Sizes sizes = program_.sizes_of(*x);
    const Op op = static_cast<Op>(
        random_.between(static_cast<int>(Op::mse), static_cast<int>(Op::binary_cross_entropy)));
    Step step{op, {*x, *value({}, &sizes)}, {}, {}};
    if (sizes.size() == 1 && program_.dim == 0 && random_.one_in(2)) {
      const std::size_t labels = add_input(Sizes{}, sizes[0]);
      step = {Op::cross_entropy, {*x >= labels ? *x + 1 : *x, labels}, {}, {}};
    }
    step.scalar = true;
    program_.steps.push_back(step);
    return true;
  }

  std::size_t parameter(const Parameter& drawn) {
    // Some are those of another module.
    for (std::size_t p = 0; p < program_.parameters.size(); ++p) {
      const Parameter& other = program_.parameters[p];
      if (other.sizes == drawn.sizes && other.ones == drawn.ones && other.zeros == drawn.zeros &&
          other.single == drawn.single && random_.one_in(3)) {
        return p;
      }
    }
    program_.parameters.push_back(drawn);
    program_.parameters.back().frozen = random_.one_in(6);
    return program_.parameters.size() - 1;
  }

  // A step of a module, which may be one that is there.
  bool add(std::vector<std::size_t> from, Module module, Sizes sizes) {
    if (count(sizes) > 150 || count(sizes) == 0) return false;
    Step step{module.op, std::move(from), {}, std::move(sizes)};
    step.module = program_.modules.size();
    for (std::size_t m = 0; m < program_.modules.size(); ++m) {
      const Module& other = program_.modules[m];
      if (other.op == module.op && other.numbers == module.numbers && random_.one_in(3)) {
        step.module = m;
      }
    }
    if (step.module == program_.modules.size()) {
      fill(module);
      program_.modules.push_back(std::move(module));
    }
    program_.steps.push_back(std::move(step));
    return true;
  }

  // Gives a new module its parameters.
  void fill(Module& module) {
    const Numbers& n = module.numbers;
    // Normalisations have weights of f32 beside half precision.
    const bool normalises = module.op >= Op::batch_norm && module.op <= Op::group_norm;
    const bool single = program_.type > Type::f32 && (normalises || refuses_half(module.op));
    const auto own = [&](const Sizes& sizes, bool ones = false, std::int64_t zeros = -1) {
      module.parameters.push_back(parameter({sizes, false, ones, zeros, single}));
    };
    switch (module.op) {
      case Op::linear:
      case Op::inner:
      case Op::sequence:
        own({n[1], n[0]});
        if (n[2] != 0) own({n[1]});
        break;
      case Op::conv2d:
        own({n[1], n[0] / n[6], n[2], n[2]});
        if (n[7] != 0) own({n[1]});
        break;
      case Op::batch_norm:
        if (n[2] != 0) {
          own({n[0]}, true);
          own({n[0]});
        }
        break;
      case Op::layer_norm:
        if (n[1] != 0) {
          own(Sizes(n.begin() + 3, n.end()), true);
          if (n[2] != 0) own(Sizes(n.begin() + 3, n.end()));
        }
        break;
      case Op::group_norm:
        if (n[2] != 0) {
          own({n[0]}, true);
          own({n[0]});
        }
        break;
      case Op::embedding:
        own({n[0], n[1]}, false, n[2]);
        break;
      case Op::multihead:
        own({3 * n[0], n[0]});
        if (n[2] != 0) own({3 * n[0]});
        own({n[0], n[0]});
        if (n[2] != 0) own({n[0]});
        break;
      case Op::rnn:
      case Op::relu_rnn:
      case Op::lstm:
      case Op::gru: {
        const std::int64_t gates = module.op == Op::lstm ? 4 : module.op == Op::gru ? 3 : 1;
        for (std::int64_t i = 0; i < n[2] * (1 + n[3]); ++i) {
          own({gates * n[1], i < 1 + n[3] ? n[0] : (1 + n[3]) * n[1]});
          own({gates * n[1], n[1]});
          if (n[4] != 0) own({gates * n[1]});
          if (n[4] != 0) own({gates * n[1]});
        }
        break;
      }
      case Op::affine:
        own({n[0]}, true);
        break;
      default:
        break;
    }
  }

  bool add_module() {
    const Op op = static_cast<Op>(
        random_.between(static_cast<int>(Op::linear), static_cast<int>(Op::average)));
    if (op == Op::embedding) return add_embedding();
    if (op == Op::conv2d) return add_conv2d();
    const bool sequences = op == Op::multihead || (op >= Op::rnn && op <= Op::gru);
    const auto x = value(sequences ? std::optional<std::size_t>(2) : std::nullopt);
    if (!x) return false;
    Sizes sizes = program_.sizes_of(*x);
    if (sizes.empty()) return false;
    switch (op) {
      case Op::linear:
      case Op::inner:
      case Op::sequence: {
        const std::int64_t in = std::exchange(sizes.back(), number(1, 5));
        return add({*x}, {op, {in, sizes.back(), flag(), number(0, 5)}, {}}, sizes);
      }
      case Op::batch_norm: {
        const auto rank = static_cast<std::int64_t>(sizes.size()) + 1;
        return add({*x}, {op, {sizes[0], rank, flag(), random_.one_in(5) ? 0 : 1}, {}}, sizes);
      }
      case Op::layer_norm: {
        const std::int64_t dims = sizes.size() > 1 ? number(1, 2) : 1;
        Numbers numbers{dims, flag(), flag()};
        numbers.insert(numbers.end(), sizes.end() - dims, sizes.end());
        return add({*x}, {op, numbers, {}}, sizes);
      }
      case Op::group_norm: {
        const std::int64_t groups = sizes[0] % 2 == 0 ? number(1, 2) : 1;
        return add({*x}, {op, {sizes[0], groups, flag()}, {}}, sizes);
      }
      case Op::multihead: {
        const std::int64_t heads = sizes[1] % 2 == 0 ? number(1, 2) : 1;
        const std::int64_t weights = flag();
        const Numbers numbers{sizes[1], heads, flag(), flag(), weights};
        if (weights != 0) sizes[1] = sizes[0];
        return add({*x}, {op, numbers, {}}, sizes);
      }
      case Op::dropout:
        return add({*x}, {op, {train_ ? 0 : number(0, 90)}, {}}, sizes);
      case Op::affine:
      case Op::average:
        return add({*x}, {op, {sizes.back()}, {}}, sizes);
      default: {
        const Numbers n{sizes[1], number(1, 3), number(1, 2), flag(), flag(), flag()};
        const Sizes result =
            n[5] != 0 ? Sizes{n[2] * (1 + n[3]), n[1]} : Sizes{sizes[0], (1 + n[3]) * n[1]};
        return add({*x}, {op, n, {}}, result);
      }
    }
  }

  bool add_embedding() {
    std::vector<std::size_t> indices;
    for (std::size_t v = 0; v < program_.values(); ++v) {
      if (program_.is_index(v) && program_.sizes_of(v).size() < 3) indices.push_back(v);
    }
    if (indices.empty()) return false;
    const std::size_t x = indices[random_.between<std::size_t>(0, indices.size() - 1)];
    const std::int64_t rows = program_.classes_of(x);
    const std::int64_t width = number(1, 4);
    Sizes sizes = program_.sizes_of(x);
    sizes.push_back(width);
    const std::int64_t padding = random_.one_in(3) ? number(0, rows - 1) : -1;
    const bool sparse = program_.type <= Type::f32 && random_.one_in(3);  // half has none
    return add({x}, {Op::embedding, {rows, width, padding, sparse ? 1 : 0}, {}}, sizes);
  }

  bool add_conv2d() {
    const auto x = value(3);
    if (!x) return false;
    Sizes sizes = program_.sizes_of(*x);
    const std::int64_t groups = random_.one_in(2) ? 1 : sizes[0];
    const std::int64_t in = sizes[0];
    const std::int64_t kernel = number(1, 3);
    const std::int64_t stride = number(1, 2);
    const std::int64_t padding = number(0, 2);
    const std::int64_t dilation = number(1, 2);
    sizes[0] = groups * number(1, 2);
    const std::int64_t reach = dilation * (kernel - 1) + 1;
    for (std::size_t k = 1; k < 3; ++k) {
      if (sizes[k] + 2 * padding < reach) return false;
      sizes[k] = (sizes[k] + 2 * padding - reach) / stride + 1;
    }
    const Numbers numbers{in, sizes[0], kernel, stride, padding, dilation, groups, flag()};
    return add({*x}, {Op::conv2d, numbers, {}}, sizes);
  }

  void draw_outputs() {
    if (program_.steps.empty()) {
      const std::size_t x = add_input(Sizes{3});
      add(Op::tanh, {x}, {}, {3});
    }
    // What nothing reads, and some others.
    for (std::size_t v = program_.inputs.size(); v < program_.values(); ++v) {
      if (program_.sizes_of(v).size() < least_rank() && !program_.is_scalar(v)) continue;
      bool read = false;
      for (const Step& step : program_.steps) {
        read = read || std::find(step.from.begin(), step.from.end(), v) != step.from.end();
      }
      if (!read || random_.one_in(4)) program_.outputs.push_back(v);
    }
    if (!program_.outputs.empty()) return;
    // The last step has no dimension to put in front of its rows.
    const std::size_t last = program_.values() - 1;
    add(Op::stack, {last, last}, {1}, {2});
    program_.outputs.push_back(last + 1);
  }

  // DistributedDataParallel refuses a dense gradient where it has been promised a sparse one.
  void separate_sparse() {
    for (Module& module : program_.modules) {
      if (module.op != Op::embedding) continue;
      const auto shares = [&](const Module& other) {
        const auto& own = other.parameters;
        return &other != &module &&
               std::find(own.begin(), own.end(), module.parameters[0]) != own.end();
      };
      if (std::any_of(program_.modules.begin(), program_.modules.end(), shares)) {
        module.numbers[3] = 0;
      }
    }
  }

  void draw_rounds() {
    const std::int64_t fixed =
        program_.splitting == Splitting::sizes
            ? std::accumulate(program_.chunks.begin(), program_.chunks.end(), std::int64_t{0})
            : -1;
    const auto some = [&]() -> std::int64_t {
      if (program_.parameters.empty() || !random_.one_in(5)) return -1;
      return number(0, static_cast<std::int64_t>(program_.parameters.size()) - 1);
    };
    for (int n = random_.between(1, 3); n > 0; --n) {
      Round round;
      round.rows = fixed >= 0 ? fixed : number(random_.one_in(4) ? 0 : 2, 9);
      round.train = train_ && !random_.one_in(5);
      round.no_grad = random_.one_in(8);
      round.zero_grad = !random_.one_in(4);
      // DistributedDataParallel looks at its construction at what is to be trained.
      if (program_.way != Way::distributed) round.freeze = some();
      round.change = some();
      if (!random_.one_in(3)) round.streams = random_.next();
      program_.rounds.push_back(round);
    }
  }

  property::Random& random_;
  Program program_;
  bool train_ = true;
};

}  // namespace lockstep::testing::programs
