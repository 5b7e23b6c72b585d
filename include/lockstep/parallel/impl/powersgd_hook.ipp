// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/visit.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/powersgd_hook.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::ddp_comm_hooks {

namespace detail {

// The type that stores a T: no dtype is unsigned.
template <class T>
using StoredAs = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::int64_t, T>;

template <class T>
void check_at_least(const char* name, T least, T value) {
  check<ValueError>(value >= least, "PowerSGDState: expected ", name, " to be at least ", least,
                    ", got ", value);
}
inline std::string name_of(std::size_t parameter, const char* what) {
  return lockstep::detail::str("state.", parameter, '.', what);
}

}  // namespace detail

LOCKSTEP_INLINE PowerSGDState::Memory& PowerSGDState::memory_of(const Tensor& parameter) {
  return memory_.try_emplace(parameter.impl().get(), Memory{parameter}).first->second;
}

LOCKSTEP_INLINE const PowerSGDOptions& PowerSGDState::checked(const PowerSGDOptions& options) {
  detail::check_at_least("matrix_approximation_rank", std::int64_t{1},
                         options.matrix_approximation_rank);
  detail::check_at_least("start_powerSGD_iter", std::int64_t{0}, options.start_powerSGD_iter);
  detail::check_at_least("min_compression_rate", 0.0, options.min_compression_rate);
  detail::check_at_least("orthogonalization_epsilon", 0.0, options.orthogonalization_epsilon);
  return options;
}

LOCKSTEP_INLINE StateDict PowerSGDState::state_of(const std::vector<Tensor>& parameters) const {
  using lockstep::detail::named_number;
  StateDict dict;
  dict.push_back(named_number("iter", iter_));
  dict.push_back(named_number("numel_before_compression", before_));
  dict.push_back(named_number("numel_after_compression", after_));
  for_each_member(options_, [&dict]<class Option>(std::string_view name, const Option& option) {
    dict.push_back(named_number(std::string(name), static_cast<detail::StoredAs<Option>>(option)));
  });
  const std::string random = random_.state();
  const Tensor bytes =
      empty({static_cast<std::int64_t>(random.size())}, TensorOptions{.dtype = Dtype::u8});
  std::copy(random.begin(), random.end(), bytes.mutable_data_ptr<std::uint8_t>());
  dict.push_back({"random_state", bytes});
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = memory_.find(parameters[i].impl().get());
    if (found == memory_.end()) continue;
    const auto add = [&](const char* what, const Tensor& tensor) {
      if (tensor.defined()) dict.push_back({detail::name_of(i, what), tensor});
    };
    add("error", found->second.error);
    add("random", found->second.random);
    add("q", found->second.q);
  }
  return dict;
}

LOCKSTEP_INLINE void PowerSGDState::load_state(const StateDict& dict,
                                               const std::vector<Tensor>& parameters) {
  lockstep::detail::StateReader reader("PowerSGDState", dict);
  const std::int64_t iter = reader.count("iter");
  const std::int64_t before = reader.count("numel_before_compression");
  const std::int64_t after = reader.count("numel_after_compression");
  PowerSGDOptions options;
  for_each_member(options, [&reader]<class Option>(std::string_view name, Option& option) {
    option = static_cast<Option>(reader.number<detail::StoredAs<Option>>(std::string(name)));
  });
  const auto given = [&](const std::string& name) {
    const auto entry =
        lockstep::detail::find_if(dict, [&](const NamedTensor& each) { return each.name == name; });
    return entry == dict.end() ? Tensor() : entry->tensor;
  };
  const auto copy = [&](const std::string& name, Dtype dtype, Device device, const Shape& shape) {
    return reader.copy(name, empty(shape, {.dtype = dtype, .device = device}));
  };
  // f32 or f64, since hooks around this one may have made f64 buckets of any parameters.
  const auto copy_matrix = [&](const std::string& name, Device device, const Shape& shape) {
    const Tensor source = given(name);
    const Dtype dtype = source.defined() ? source.dtype() : Dtype::f32;
    if (dtype != Dtype::f32 && dtype != Dtype::f64) {
      reader.misfit(name, lockstep::detail::str("has to be of f32 or f64, and is of ", dtype));
    }
    return copy(name, dtype, device, shape);
  };
  const Tensor state = given("random_state");
  if (state.defined() && state.dtype() != Dtype::u8) {
    reader.misfit("random_state",
                  lockstep::detail::str("has to be of u8, and is of ", state.dtype()));
  }
  const Tensor bytes = copy("random_state", state.defined() ? state.dtype() : Dtype::u8, {},
                            {state.defined() ? state.numel() : 0});
  std::unordered_map<const lockstep::detail::TensorImpl*, Memory> memory;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!reader.has_any(detail::name_of(i, ""))) continue;
    const Tensor& parameter = parameters[i];
    const auto [rows, columns] = matrix_of(parameter);
    const std::int64_t rank = std::max(std::int64_t{1}, options.matrix_approximation_rank);
    const Shape thin{std::min({rows, columns, rank}), columns};
    Memory loaded{parameter};
    if (reader.has_any(detail::name_of(i, "error"))) {
      loaded.error = copy_matrix(detail::name_of(i, "error"), parameter.device(), {rows, columns});
    }
    loaded.random = copy_matrix(detail::name_of(i, "random"), parameter.device(), thin);
    loaded.q = copy_matrix(detail::name_of(i, "q"), parameter.device(), thin);
    memory.emplace(parameter.impl().get(), std::move(loaded));
  }
  reader.finish();
  const PowerSGDOptions taken = checked(options);
  const auto* const text = bytes.const_data_ptr<std::uint8_t>();
  random_.set_state(std::string(text, text + bytes.numel()));
  options_ = taken;
  memory_ = std::move(memory);
  iter_ = iter;
  before_ = before;
  after_ = after;
}

namespace detail {

using lockstep::detail::mm;  // not matmul, which autocast would round

// Makes the rows orthonormal. A row that depends on those before it becomes an arbitrary one that
// does not, or 0.
inline void orthogonalize_rows(const Tensor& rows, double epsilon) {
  constexpr double kTiny = 1e-30;  // keeps rows of zeros as they are
  const auto norm_of = [](const Tensor& row) { return sqrt(square(row).sum()); };
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const Tensor row = rows.narrow(0, i, 1);
    const auto remove_part_along_rows_before = [&] {
      if (i == 0) return;
      const Tensor before = rows.narrow(0, 0, i);
      row.add_(mm(mm(row, before, false, true), before), -1);
    };
    remove_part_along_rows_before();
    const Tensor norm = norm_of(row) + epsilon;
    row.copy_(row / (relu(norm - kTiny) + kTiny));
    // The second time removes the rounding errors of the first, and normalises a row whose square
    // was too small. A row of nothing but rounding errors loses most of its length and becomes 0.
    const Tensor length = norm_of(row);
    remove_part_along_rows_before();
    const Tensor rest = i > 0 ? norm_of(row) : length;
    const Tensor kept = relu(rest - length * 0.5);
    row.copy_(row * (kept / (kept * (rest + epsilon) + kTiny)));
  }
}

// Records the tensor on the current stream if its memory belongs to another stream.
inline void hand_over(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  if (stream != tensor.impl()->storage->owner()) tensor.record_stream(stream);
}

// One bucket that is being reduced.
//
// Each gradient M [rows, columns] that is worth it is approximated by P·Q: first P = mean of M·Qᵀ,
// with Q from the last pass, then P's columns are made orthonormal, then Q = mean of Pᵀ·M. If P
// spans the columns of the mean of M, P·Q is that mean. P is stored transposed, so that its columns
// are rows.
class PowerSGDBucket {
 public:
  PowerSGDBucket(std::shared_ptr<PowerSGDState> state, GradBucket bucket)
      : state_(std::move(state)), bucket_(std::move(bucket)) {
    std::int64_t length_p = 0;
    std::int64_t length_q = 0;
    std::int64_t length_rest = 0;
    for (std::size_t i = 0; i < bucket_.size(); ++i) {
      const Tensor gradient = bucket_.gradient(i);
      const auto [rows, columns] = PowerSGDState::matrix_of(gradient);
      const std::int64_t rank =
          std::min({rows, columns, state_->options().matrix_approximation_rank});
      state_->count(gradient.numel(), 0);
      if (static_cast<double>((rows + columns) * rank) * state_->options().min_compression_rate <
          static_cast<double>(rows * columns)) {
        matrices_.push_back({.number = i, .rows = rows, .columns = columns, .rank = rank});
        length_p += rows * rank;
        length_q += columns * rank;
      } else {
        rest_.push_back({i});
        length_rest += gradient.numel();
      }
    }
    state_->count(0, length_p + length_q + length_rest);
    if (matrices_.empty()) return;
    TensorOptions options = bucket_.buffer().options();
    flat_rest_ = empty({length_rest}, options);
    if (lockstep::detail::is_half_precision(options.dtype)) options.dtype = Dtype::f32;
    flat_p_ = empty({length_p}, options);
    flat_q_ = empty({length_q}, options);
    length_p = length_q = length_rest = 0;
    for (Matrix& matrix : matrices_) {
      matrix.p = next_part(flat_p_, length_p, {matrix.rank, matrix.rows});
      matrix.q = next_part(flat_q_, length_q, {matrix.rank, matrix.columns});
    }
    for (Rest& rest : rest_) {
      rest.part = next_part(flat_rest_, length_rest, bucket_.gradient(rest.number).sizes());
    }
  }

  // Starts the collectives that do not depend on others; `finish` does the rest at the end of
  // backward.
  static BucketFuture reduce(const std::shared_ptr<PowerSGDBucket>& self) {
    const NoGradGuard guard;
    const distributed::ProcessGroup& group = self->state_->group();
    const Tensor& buffer = self->bucket_.buffer();
    if (self->matrices_.empty()) {
      return {group.all_reduce(buffer, distributed::ReduceOp::avg), buffer};
    }
    if (self->flat_rest_.numel() > 0) {
      for (const Rest& rest : self->rest_) {
        rest.part.copy_(self->bucket_.gradient(rest.number));
      }
      self->rest_sent_ = group.all_reduce(self->flat_rest_, distributed::ReduceOp::avg);
    }
    for (Matrix& matrix : self->matrices_) self->start(matrix);
    return BucketFuture(group.all_reduce(self->flat_p_, distributed::ReduceOp::avg), buffer)
        .then([self](const Tensor& result) {
          self->finish();
          return result;
        });
  }

 private:
  // The share of the random start that each pass adds to Q, so that a row that a zero gradient has
  // made 0 starts again from random numbers.
  static constexpr double kRevival = 1e-15;

  struct Matrix {
    std::size_t number;  // of the gradient in the bucket
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t rank;
    Tensor p = {};       // [rank, rows], in `flat_p_`
    Tensor q = {};       // [rank, columns], in `flat_q_`
    Tensor values = {};  // [rows, columns], the gradient plus earlier passes' errors
  };
  struct Rest {
    std::size_t number;
    Tensor part = {};  // in `flat_rest_`
  };

  // The part of `flat` from element `begin` on; advances `begin` to its end.
  static Tensor next_part(const Tensor& flat, std::int64_t& begin, const Shape& shape) {
    const std::int64_t at = std::exchange(begin, begin + numel(shape));
    return flat.narrow(0, at, begin - at).reshape(shape);
  }
  PowerSGDState::Memory& memory_of(const Matrix& matrix) const {
    return state_->memory_of(bucket_.parameters()[matrix.number]);
  }

  void start(Matrix& matrix) {
    const PowerSGDOptions& options = state_->options();
    PowerSGDState::Memory& memory = memory_of(matrix);
    // A loaded state may come from buckets of another dtype.
    for (Tensor* const each : {&memory.error, &memory.random, &memory.q}) {
      if (each->defined()) *each = each->to(flat_p_.dtype());
    }
    matrix.values =
        bucket_.gradient(matrix.number).to(flat_p_.dtype()).reshape({matrix.rows, matrix.columns});
    if (memory.error.defined()) {
      matrix.values = memory.error.add_(matrix.values);
    } else if (options.use_error_feedback) {
      matrix.values = memory.error = matrix.values.clone();
    }
    if (!options.warm_start || !memory.random.defined()) {
      memory.random = randn({matrix.rank, matrix.columns}, flat_q_.options(), state_->random());
      memory.q = memory.random.clone();
    } else {
      memory.q.add_(memory.random, kRevival);
    }
    orthogonalize_rows(memory.q, options.orthogonalization_epsilon);
    matrix.p.copy_(mm(memory.q, matrix.values, false, true));
  }

  void finish() {
    const NoGradGuard guard;
    const PowerSGDOptions& options = state_->options();
    for (const Tensor& flat : {flat_p_, flat_q_, flat_rest_}) hand_over(flat);
    for (const Matrix& matrix : matrices_) {
      orthogonalize_rows(matrix.p, options.orthogonalization_epsilon);
      hand_over(matrix.values);
      matrix.q.copy_(mm(matrix.p, matrix.values));
    }
    (void)state_->group().blocking().all_reduce(flat_q_, distributed::ReduceOp::avg);
    for (const Matrix& matrix : matrices_) {
      const Tensor mean = mm(matrix.p, matrix.q, true);
      const Tensor gradient = bucket_.gradient(matrix.number);
      gradient.copy_(mean.reshape(gradient.sizes()));
      PowerSGDState::Memory& memory = memory_of(matrix);
      if (memory.error.defined()) memory.error.add_(mean, -1);
      memory.q = matrix.q.clone();
    }
    rest_sent_.wait();
    for (const Rest& rest : rest_) bucket_.gradient(rest.number).copy_(rest.part);
  }

  std::shared_ptr<PowerSGDState> state_;
  GradBucket bucket_;
  std::vector<Matrix> matrices_;
  std::vector<Rest> rest_;
  Tensor flat_p_;  // all matrices' P, one after the other
  Tensor flat_q_;
  Tensor flat_rest_;  // the gradients that are sent as they are
  distributed::Work rest_sent_;
};

}  // namespace detail

LOCKSTEP_INLINE CommHook powerSGD_hook(std::shared_ptr<PowerSGDState> state) {
  check<ValueError>(state != nullptr, "powerSGD_hook: the state is null");
  return [state = std::move(state)](const GradBucket& bucket) -> BucketFuture {
    const bool compresses = state->iter() >= state->options().start_powerSGD_iter;
    if (bucket.is_last()) state->set_iter(state->iter() + 1);
    if (compresses) {
      return detail::PowerSGDBucket::reduce(
          std::make_shared<detail::PowerSGDBucket>(state, bucket));
    }
    return {state->group().all_reduce(bucket.buffer(), distributed::ReduceOp::avg),
            bucket.buffer()};
  };
}

}  // namespace lockstep::ddp_comm_hooks
