// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/composed_grads.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/batch_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void check_batch_count(double own, const Tensor& all, const char* parts,
                                       const Tensor& x) {
  check<ValueError>(own > 1 || all.detach().item() != 1,
                    "Expected more than 1 value per channel when training, got input size ",
                    x.sizes(), " and 1 value in all ", parts);
}

// The statistics over all replicas, which may have different numbers of values. The replicas
// exchange two sums, of values and then of squared differences from the mean. (One exchange of sums
// and sums of squares would lose precision where the mean is large.)
inline BatchStatistics statistics_of_all(const Tensor& x, const Moments& own, double count,
                                         Tensor (*sum_of_batch)(const Tensor&)) {
  const std::int64_t channels = own.mean.numel();
  const Tensor total = sum_of_batch(cat({own.mean * count, full({1}, count, own.mean.options())}));
  const Tensor values = total.narrow(0, channels, 1);
  check_batch_count(count, values, "replicas", x);
  const Tensor divisor = clamp(values, 1);  // not 0 for an empty batch
  const Tensor mean = total.narrow(0, 0, channels) / divisor;
  const Tensor squares = sum_of_batch((own.var + square(own.mean - mean)) * count);
  const Tensor var = squares / divisor;
  const NoGradGuard guard;
  return {mean, var, squares / (values - 1), clamp(values, {}, 1)};
}

// The running statistics in the form in which a kernel changes them: contiguous, on one device.
class MovingStatistics {
 public:
  // `moves` is false if mean and variance must stay. Nothing is recorded while this lives.
  MovingStatistics(const RunningStatistics& running, const Device& device, bool moves)
      : of_(running) {
    if (moves && of_.mean.defined()) {
      mean_ = changeable(of_.mean);
      var_ = changeable(of_.var);
    }
    const Tensor& batches = of_.batches;
    if (batches.defined() && batches.device() == device && batches.dtype() == Dtype::i64 &&
        batches.numel() == 1) {
      batches_ = changeable(batches);
    }
  }

  template <class T>
  RunningViews<T> views(const Stream& stream) const {
    return {optional_output<T>(mean_, stream), optional_output<T>(var_, stream),
            optional_output<std::int64_t>(batches_, stream), static_cast<T>(1 - of_.momentum),
            static_cast<T>(of_.momentum)};
  }

  // Called after the kernel.
  void finish() const {
    put_back(of_.mean, mean_);
    put_back(of_.var, var_);
    if (of_.batches.defined() && !batches_.defined()) {
      of_.batches.add_(ones({}, of_.batches.options()));
    }
  }

 private:
  static Tensor changeable(const Tensor& tensor) {
    check_changeable(tensor, "batch_norm");
    return packed(tensor);
  }
  static void put_back(const Tensor& tensor, const Tensor& changed) {
    if (changed.defined() && !tensor.is_contiguous()) copy_into(tensor, changed);
  }

  const NoGradGuard guard_;
  const RunningStatistics& of_;
  Tensor mean_;  // undefined, like the others, if it must stay
  Tensor var_;
  Tensor batches_;
};

// Moves the running statistics towards those of a batch of which only a part is here; an empty
// batch leaves them as they are.
inline void move_towards(const RunningStatistics& running, const BatchStatistics& batch) {
  if (!running.mean.defined() && !running.batches.defined()) return;
  const MovingStatistics moving(running, batch.mean.device(), true);
  const Stream stream = current_stream(batch.mean.device());
  const Tensor mean = packed(batch.mean);
  const Tensor unbiased = packed(batch.unbiased);
  const Tensor present = packed_or_undefined(batch.present);
  dispatch_floating(mean.dtype(), "batch_norm", [&]<class T>(T) {
    launch(stream, static_cast<std::size_t>(mean.numel()),
           MoveRunningKernel<T>{input<T>(mean), input<T>(unbiased), optional_input<T>(present),
                                moving.views<T>(stream)});
  });
  moving.finish();
}

// Normalises by known statistics, by elementary operations.
inline Tensor normalised(const Tensor& x, const Tensor& mean, const Tensor& var,
                         const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor scale = inverse_deviation(var, eps);
  return channel_affine(x, 1, mean, weight.defined() ? scale * weight : scale, bias);
}

// A row of a matrix with rows of `size` elements.
template <class T>
View<T> row_of(const View<T>& matrix, std::size_t row, std::size_t size) {
  return {matrix.data + row * size, size};
}

template <class T>
View<const T> as_read(const View<T>& view) {
  return {view.data, view.size};
}

// Training with the statistics of x itself. Forward consists of the sums, one kernel for the
// channels and one for the elements; so does backward, unless it is recorded.
struct BatchNormOp {
  static constexpr const char* name = "batch_norm";
  double eps;
  Saved x = {};
  Saved weight = {};
  Saved bias = {};
  Saved channels = {};  // [4, channels], as Row numbers them

  enum Row { mean, var, inverse, scale, rows };

  Tensor forward(const Tensor& values, const Tensor& factor, const Tensor& offset,
                 const RunningStatistics& running) {
    x = values;
    weight = factor;
    bias = offset;
    const Axis axis(values.sizes(), 1);
    const auto count = static_cast<double>(axis.outer * axis.inner);
    const Tensor in = packed(values);
    const Tensor factors = packed_or_undefined(factor);
    const Tensor offsets = packed_or_undefined(offset);
    const Stream stream = current_stream(values.device());
    const MovingStatistics moving(running, values.device(), count > 0);
    const Tensor table = empty_on(stream, {Row::rows, values.size(1)}, values.dtype());
    Tensor out = empty_on(stream, values.sizes(), values.dtype());
    dispatch_floating(values.dtype(), name, [&]<class T>(T) {
      const View<T> all = output<T>(table, stream);
      const auto row = [&](Row number) { return row_of(all, number, axis.count); };
      launch_call(stream, ChannelMomentsCall<T>{input<T>(in), row(mean), row(var), axis});
      launch(stream, axis.count,
             BatchScaleKernel<T>{as_read(row(mean)), as_read(row(var)), optional_input<T>(factors),
                                 row(inverse), row(scale), moving.views<T>(stream),
                                 static_cast<T>(eps), static_cast<T>(count / (count - 1))});
      launch_call(stream,
                  ChannelAffineCall<T>{input<T>(in), as_read(row(mean)), as_read(row(scale)),
                                       optional_input<T>(offsets), output<T>(out, stream), axis});
    });
    moving.finish();
    channels = table;
    return out;
  }

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const {
    if (!is_grad_enabled()) return fused(saved, grad);
    return composed_grads<3>({saved(x), saved(weight), saved(bias)}, {grad},
                             [this](const std::array<Tensor, 3>& in) {
                               const Moments moments = channel_moments(in[0], 1);
                               return std::vector<Tensor>{
                                   normalised(in[0], moments.mean, moments.var, in[1], in[2], eps)};
                             });
  }

 private:
  std::array<Tensor, 3> fused(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 3> grads;
    const Tensor slopes = packed(grad);
    Tensor total;
    if (saved.needs(0) || saved.needs(2)) total = channel_sum(slopes, 1, saved.gradient_slot(2));
    if (saved.needs(2)) grads[2] = total;
    if (!saved.needs(0) && !saved.needs(1)) return grads;

    const Tensor in = packed(saved(x));
    const Tensor table = saved(channels);
    if (saved.needs(0)) (void)saved(weight);  // checks that it is unchanged since `table` was made
    const Axis axis(in.sizes(), 1);
    const auto count = static_cast<double>(std::max<std::size_t>(axis.outer * axis.inner, 1));
    const Stream stream = current_stream(in.device());
    if (saved.needs(0)) grads[0] = empty_on(stream, in.sizes(), in.dtype());
    if (saved.needs(1)) {
      const Tensor slot = saved.gradient_slot(1);
      grads[1] = empty_at(&slot, {&table, &slopes, &in}, stream, {in.size(1)}, in.dtype());
    }
    const Tensor work = empty_on(stream, {3, in.size(1)}, in.dtype());
    dispatch_floating(in.dtype(), name, [&]<class T>(T) {
      const View<const T> known = input<T>(table);
      const auto row = [&](Row number) { return row_of(known, number, axis.count); };
      const View<T> made = output<T>(work, stream);
      const View<T> dot = row_of(made, 0, axis.count);
      const View<T> slope = saved.needs(0) ? row_of(made, 1, axis.count) : View<T>{};
      const View<T> shift = saved.needs(0) ? row_of(made, 2, axis.count) : View<T>{};
      launch_call(stream, ChannelDotCall<T>{input<T>(slopes), input<T>(in), row(mean), dot, axis});
      launch(stream, axis.count,
             BatchGradientKernel<T>{optional_input<T>(total), as_read(dot), row(inverse),
                                    row(scale), optional_output<T>(grads[1], stream), slope, shift,
                                    static_cast<T>(1 / count)});
      if (!saved.needs(0)) return;
      launch_call(stream, ChannelGradientCall<T>{input<T>(slopes), input<T>(in), row(mean),
                                                 row(scale), as_read(slope), as_read(shift),
                                                 output<T>(grads[0], stream), axis});
    });
    return grads;
  }
};

LOCKSTEP_INLINE Tensor batch_norm_from(const StatisticsSource* source, const Tensor& x,
                                       const RunningStatistics& running, const Tensor& weight,
                                       const Tensor& bias, bool training, double eps) {
  check_floating("batch_norm", x);
  if (is_half_precision(x.dtype())) {
    return batch_norm_from(source, x.to(Dtype::f32), running, weight, bias, training, eps)
        .to(x.dtype());
  }
  check<ShapeError>(x.dim() >= 2,
                    "batch_norm: expected an input of shape [batch, channels, …], got ", x.sizes());
  check<ValueError>(
      running.mean.defined() == running.var.defined() && (training || running.mean.defined()),
      "batch_norm: expected running_mean and running_var to be defined when "
      "training is false, and both or none when it is true");
  check<ValueError>(eps >= 0, "batch_norm: expected an eps of at least 0, got ", eps);
  const Shape channels{x.size(1)};
  check_norm_operand("batch_norm", "running_mean", running.mean, x, channels);
  check_norm_operand("batch_norm", "running_var", running.var, x, channels);
  check_norm_operand("batch_norm", "weight", weight, x, channels);
  check_norm_operand("batch_norm", "bias", bias, x, channels);

  if (!training) {
    const bool saves_mean = is_grad_enabled() && weight.defined() && weight.requires_grad();
    // The running mean may change before backward.
    return normalised(x, saves_mean ? running.mean.clone() : running.mean, running.var, weight,
                      bias, eps);
  }
  const Axis axis(x.sizes(), 1);
  std::optional<BatchStatistics> batch;  // set if x is only a part of the batch
  if (source) batch = (*source)(x);
  if (!batch && axis.inner > 0 && current_replica.sum_of_batch) {
    const auto count = static_cast<double>(axis.outer * axis.inner);
    batch = statistics_of_all(x, channel_moments(x, 1), count, current_replica.sum_of_batch);
  }
  if (batch) {
    move_towards(running, *batch);
    return normalised(x, batch->mean, batch->var, weight, bias, eps);
  }
  check<ValueError>(axis.outer * axis.inner != 1,
                    "Expected more than 1 value per channel when training, got input size ",
                    x.sizes(),
                    current_replica.group ? ". DataParallel's option .split = "
                                            "ls::Split::chunk.at_least(2), or prefetch's where "
                                            "that divides the batch, gives each replica two rows "
                                            "or more, if the batch has as many"
                                          : "");
  return lockstep::apply(BatchNormOp{eps}, x, weight, bias, running);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor batch_norm(const Tensor& x, const Tensor& running_mean,
                                  const Tensor& running_var, const Tensor& weight,
                                  const Tensor& bias, bool training, double momentum, double eps) {
  return detail::batch_norm_from(nullptr, x, {running_mean, running_var, {}, momentum}, weight,
                                 bias, training, eps);
}

}  // namespace lockstep
