// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

// Random programs: a module that is made up, and a training of it. A Program is plain data, so that
// it can be drawn, printed, made smaller, and run in two ways that share no code: by the library
// (library_training.hpp) and by the formulas of reference.hpp.
namespace lockstep::testing::programs {

// A shape without its rows, which come first and differ from chunk to chunk.
using Sizes = std::vector<std::int64_t>;

inline std::int64_t count(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// What one step of a program does, and the numbers it has.
enum class Op {
  // of one value, element by element
  relu,
  tanh,
  sigmoid,
  gelu,  // approximation by tanh or not
  silu,
  leaky_relu,
  clamp,  // to ±0.5
  abs,
  square,  // of the tanh, so that numbers stay small; so the next four
  exp,
  log,    // of 1 + x²
  sqrt,   // of 1 + x²
  cube,   // an operation of the test's own, as twofold
  scale,  // in hundredths: factor, offset
  detach,
  clone,
  softmax,  // of the last dimension; so the next one
  log_softmax,
  argmax,  // dimension; gives indices
  // of one value, with another shape; dimensions are counted with the rows
  flatten,
  divide,     // the last dimension's first factor
  transpose,  // two dimensions
  narrow,     // dimension, start
  select,     // dimension, index
  sum,        // dimension, whether it stays
  mean,
  var,           // dimension, whether it stays, correction
  extreme,       // dimension; 0: the greatest, 1: the least, 2: the greatest by gather
  index_select,  // dimension, indices
  max_pool,      // kernel, stride, padding
  avg_pool,      // kernel, stride, padding, whether the padding counts
  // of two values
  add,
  sub,
  mul,
  quotient,  // x / (1 + y²)
  maximum,
  minimum,
  twofold,    // has two results: 0: the one, 1: the other, 2: the sum of both
  where,      // x > y; of four values
  matmul,     // x · yᵀ
  cat,        // dimension
  stack,      // dimension
  attention,  // whether causal; of three values
  // modules, with parameters or buffers
  linear,      // in, out, whether there is a bias
  inner,       // the same within a DataParallel of its own; the number of its second device
  sequence,    // in, out, bias: linear and relu
  conv2d,      // in, out, kernel, stride, padding, dilation, groups, bias
  batch_norm,  // features, dimensions, affine, whether statistics are kept
  layer_norm,  // how many dimensions, affine, bias; their sizes
  group_norm,  // channels, groups, affine
  embedding,   // embeddings, width, padding index or −1, sparse
  multihead,   // embed, heads, bias, causal, weights wanted
  rnn,         // in, hidden, layers, bidirectional, bias, last states in place of the output
  relu_rnn,
  lstm,
  gru,
  dropout,  // per cent
  affine,   // features: a parameter times x plus a buffer
  average,  // features: x minus a buffer, which forward moves towards the mean of its rows
  // without dimensions: results alone
  cross_entropy,  // of a value and labels
  mse,            // of two values, as all below
  l1,
  smooth_l1,
  binary_cross_entropy,  // with logits; the target is the sigmoid of the second value
};

inline const char* name_of(Op op) {
  static constexpr const char* names[] = {
      "relu",         "tanh",        "sigmoid",   "gelu",
      "silu",         "leaky_relu",  "clamp",     "abs",
      "square",       "exp",         "log",       "sqrt",
      "cube",         "scale",       "detach",    "clone",
      "softmax",      "log_softmax", "argmax",    "flatten",
      "divide",       "transpose",   "narrow",    "select",
      "sum",          "mean",        "var",       "extreme",
      "index_select", "max_pool",    "avg_pool",  "add",
      "sub",          "mul",         "quotient",  "maximum",
      "minimum",      "twofold",     "where",     "matmul",
      "cat",          "stack",       "attention", "linear",
      "inner",        "sequence",    "conv2d",    "batch_norm",
      "layer_norm",   "group_norm",  "embedding", "multihead",
      "rnn",          "relu_rnn",    "lstm",      "gru",
      "dropout",      "affine",      "average",   "cross_entropy",
      "mse",          "l1",          "smooth_l1", "binary_cross_entropy"};
  static_assert(std::size(names) == static_cast<std::size_t>(Op::binary_cross_entropy) + 1);
  return names[static_cast<std::size_t>(op)];
}

struct Input {
  Sizes sizes;
  std::int64_t classes = 0;  // greater than 0: indices below that
  bool i32 = false;          // they are of i32, and not of i64
  bool requires_grad = false;
  bool on_first_device = false;  // otherwise in plain host memory
};

struct Parameter {
  Sizes sizes;
  bool frozen = false;
  bool ones = false;        // the first values are about 1
  std::int64_t zeros = -1;  // a row of an embedding that is zeros
  bool single = false;      // of f32 in a program of half precision
};

struct Module {
  Op op;
  std::vector<std::int64_t> numbers;
  std::vector<std::size_t> parameters;  // of the program: those of two modules may be the same ones
};

struct Step {
  Op op;
  std::vector<std::size_t> from;  // the values that it reads
  std::vector<std::int64_t> numbers;
  Sizes sizes;                     // of its value
  std::size_t module = 0;          // for an op that is one
  bool scalar = false;             // its value has no dimensions, not even the rows
  bool twice_if_positive = false;  // a branch: done once more where the program's factor is > 0
};

// One step of the training.
struct Round {
  std::int64_t rows = 1;
  bool train = true;
  bool no_grad = false;
  bool zero_grad = true;
  std::int64_t freeze = -1;  // this parameter changes from frozen to not frozen, or back, before it
  std::int64_t change = -1;  // this parameter is overwritten by hand before it
  std::uint64_t streams = 0;  // bits, used in turn: is another stream current on a device?
};

// Of a program's numbers, from the most exact to the least.
enum class Type { f64, f32, f16, bf16 };

inline const char* name_of(Type type) {
  static constexpr const char* names[] = {"f64", "f32", "f16", "bf16"};
  return names[static_cast<std::size_t>(type)];
}

// What a result may be off by: |result| · unit, or least · unit where it is small.
struct Precision {
  double unit;
  double least;  // normal number
  double most;

  static Precision of(Type type) {
    static constexpr Precision all[] = {{0x1p-53, 0x1p-1022, 1e300},
                                        {0x1p-24, 0x1p-126, 1e30},
                                        {0x1p-11, 0x1p-14, 65504},
                                        {0x1p-8, 0x1p-126, 1e30}};
    return all[static_cast<std::size_t>(type)];
  }
};

// The number of the type that is nearest to x.
inline double nearest(Type type, double x) {
  const Precision precision = Precision::of(type);
  if (type == Type::f64 || x == 0) return x;
  const double step =
      std::exp2(std::floor(std::log2(std::max(std::abs(x), precision.least)))) * 2 * precision.unit;
  return std::nearbyint(x / step) * step;
}

enum class Splitting { chunk, balanced, sizes, weights };
enum class Scalars { each, sum, mean };
enum class Buffers { first, merged, synchronized };
// How the program is run on its devices.
enum class Way {
  wrapper,      // DataParallel
  scattered,    // DataParallel, whose input is scattered before
  function,     // data_parallel
  primitives,   // scatter, replicate, parallel_apply, gather
  distributed,  // DistributedDataParallel, a rank for each device, all in this process
};

struct Program {
  std::uint64_t seed = 0;  // of all numbers that are not in it: values, the nesting of inputs
  Type type = Type::f64;
  std::optional<Type> autocast;  // forward runs under it
  // The loss has besides itself the sum of its gradients, weighted: its own gradient has second
  // derivatives.
  bool penalty = false;
  double factor = 1;          // an input that is no tensor
  std::vector<Input> inputs;  // values 0, 1, …; the steps' come after them
  std::vector<Parameter> parameters;
  std::vector<Module> modules;
  std::vector<Step> steps;
  std::vector<std::size_t> outputs;  // values
  std::vector<Round> rounds;

  std::vector<std::size_t> devices;  // numbers of devices: may repeat
  std::size_t output_device = 0;
  Way way = Way::wrapper;
  bool small_buckets = false;  // of DistributedDataParallel: one for nearly each gradient
  std::int64_t dim = 0;        // of the rows
  Splitting splitting = Splitting::chunk;
  std::vector<std::int64_t> chunks;  // sizes, or weights
  std::int64_t at_least = 1;
  Scalars scalars = Scalars::each;
  Buffers buffers = Buffers::first;

  std::size_t values() const { return inputs.size() + steps.size(); }
  bool is_input(std::size_t value) const { return value < inputs.size(); }
  const Step& step_of(std::size_t value) const { return steps[value - inputs.size()]; }
  const Sizes& sizes_of(std::size_t value) const {
    return is_input(value) ? inputs[value].sizes : step_of(value).sizes;
  }
  // How many indices there are, of a value that is indices; otherwise 0.
  std::int64_t classes_of(std::size_t value) const {
    if (is_input(value)) return inputs[value].classes;
    const Step& step = step_of(value);
    if (step.op != Op::argmax) return 0;
    return sizes_of(step.from[0])[static_cast<std::size_t>(step.numbers[0] - 1)];
  }
  bool is_index(std::size_t value) const { return classes_of(value) > 0; }
  // The least exact type that a value may have.
  Type coarsest() const { return autocast ? *autocast : type; }
  bool is_half() const { return coarsest() > Type::f32; }
  bool is_scalar(std::size_t value) const { return !is_input(value) && step_of(value).scalar; }
};

// What refuses half precision: softmax, losses and recurrent layers. A program of half precision
// has them by way of f32.
inline bool refuses_half(Op op) {
  return op == Op::softmax || op == Op::log_softmax || (op >= Op::rnn && op <= Op::gru) ||
         op >= Op::cross_entropy;
}

// A number in [−1, 1) for each place: what a tensor's element, parameter or weight is.
inline double noise(std::uint64_t seed, std::uint64_t what, std::uint64_t place) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15U + what * 0xbf58476d1ce4e5b9U + place + 1;
  for (int i = 0; i < 2; ++i) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

// The values that a program begins with; `what` numbers the kinds of things.
struct Values {
  const Program& program;

  double parameter(std::size_t p, std::size_t place) const {
    const Parameter& of = program.parameters[p];
    const auto width = of.sizes.size() < 2 ? 1 : count(of.sizes) / of.sizes[0];
    if (of.zeros >= 0 && static_cast<std::int64_t>(place) / width == of.zeros) return 0;
    return number((of.ones ? 1.0 : 0.0) + 0.5 * noise(program.seed, 1000 + p, place));
  }
  // What a change by hand writes.
  double changed(std::size_t round, std::size_t p, std::size_t place) const {
    return number(0.5 * noise(program.seed, 100'000 + 1000 * round + p, place));
  }
  double input(std::size_t round, std::size_t i, std::size_t place) const {
    const double x = noise(program.seed, 200'000 + 1000 * round + i, place);
    const auto classes = static_cast<double>(program.inputs[i].classes);
    if (classes == 0) return number(x);
    return static_cast<double>(static_cast<std::int64_t>((x + 1) / 2 * classes));
  }
  // The loss is the sum of all elements of all outputs, weighted with these.
  double weight(std::size_t output, std::size_t place) const {
    return number(noise(program.seed, 300'000 + output, place));
  }
  // Those of the gradients in a penalty, first of the parameters, then of the inputs.
  double weight_of_gradient(std::size_t which, std::size_t place) const {
    return noise(program.seed, 400'000 + which, place);
  }

 private:
  double number(double x) const { return nearest(program.type, x); }
};

// Numbers as a tensor has them.
struct Plain {
  Sizes sizes;
  std::vector<double> values;
};

// What is looked at after a round.
struct Observed {
  std::vector<Plain> outputs;
  std::vector<std::vector<double>> input_gradients;  // those of inputs that want one
  std::vector<std::vector<double>> gradients;        // of the parameters; zeros where there is none
  std::vector<std::vector<std::vector<double>>> buffers;  // by module
  std::vector<std::vector<double>> parameters;            // after the optimiser's step
  // Where a rounding may decide, what depends on the decision need not agree.
  bool all_open = false;
};

struct Trained {
  std::vector<Observed> rounds;  // as many as came to an end
  std::vector<Observed> errors;  // of a reference: by how much each number may be off
  std::string error;             // what ended the next one
  bool refused = false;          // the error is one that has to be
};

inline constexpr double kLearningRate = 0.05;

inline std::string describe(const Program& program) {
  std::ostringstream out;
  const auto list = [&out](const char* name, const auto& numbers) {
    out << ' ' << name << " (";
    for (std::size_t i = 0; i < numbers.size(); ++i) out << (i > 0 ? ", " : "") << numbers[i];
    out << ')';
  };
  out << name_of(program.type);
  if (program.autocast) out << " under autocast to " << name_of(*program.autocast);
  out << (program.penalty ? " with a penalty" : "") << ", factor " << program.factor << '\n';
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    const Input& input = program.inputs[i];
    out << "  %" << i << " = input";
    list("[rows] +", input.sizes);
    if (input.classes > 0) out << " below " << input.classes;
    if (input.i32) out << " of i32";
    if (input.requires_grad) out << " requires_grad";
    if (input.on_first_device) out << " on the first device";
    out << '\n';
  }
  for (std::size_t j = 0; j < program.steps.size(); ++j) {
    const Step& step = program.steps[j];
    out << "  %" << program.inputs.size() + j << " = " << name_of(step.op);
    list("of", step.from);
    const bool module = step.op >= Op::linear && step.op <= Op::average;
    list("with", module ? program.modules[step.module].numbers : step.numbers);
    if (module) {
      out << " module " << step.module;
      list("parameters", program.modules[step.module].parameters);
    }
    if (step.twice_if_positive) out << " twice if positive";
    list("gives", step.sizes);
    out << '\n';
  }
  list(" outputs", program.outputs);
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    if (program.parameters[p].frozen) out << "  parameter " << p << " frozen";
    if (program.parameters[p].single) out << "  parameter " << p << " of f32";
  }
  out << '\n';
  for (const Round& round : program.rounds) {
    out << "  round of " << round.rows << " rows" << (round.train ? "" : " eval")
        << (round.no_grad ? " no_grad" : "") << (round.zero_grad ? "" : " keeps gradients");
    if (round.freeze >= 0) out << " freezes " << round.freeze;
    if (round.change >= 0) out << " changes " << round.change;
    if (round.streams != 0) out << " streams " << round.streams;
    out << '\n';
  }
  list(" devices", program.devices);
  out << " output on " << program.output_device << " way " << static_cast<int>(program.way)
      << (program.small_buckets ? " small buckets" : "") << " dim " << program.dim << " split "
      << static_cast<int>(program.splitting);
  list("", program.chunks);
  out << " at least " << program.at_least << " scalars " << static_cast<int>(program.scalars)
      << " buffers " << static_cast<int>(program.buffers) << '\n';
  return out.str();
}

}  // namespace lockstep::testing::programs
