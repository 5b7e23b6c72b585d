// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::detail {

// The element of channel c; 0 where the View is empty.
template <class T>
LOCKSTEP_HD T channel_value(const View<const T>& view, std::size_t c) {
  return view.size == 0 ? T(0) : view[c];
}

template <class T>
struct ChannelMomentsCall {
  View<const T> in;
  View<T> mean;
  View<T> var;
  Axis axis;

  // The squares are of the differences from the mean as it is rounded, so that nothing cancels, and
  // a channel of equal elements has a variance of 0.
  void operator()() const {
    const auto count = static_cast<double>(std::max<std::size_t>(axis.outer * axis.inner, 1));
    const auto value = [this](std::size_t i, std::size_t) { return static_cast<double>(in[i]); };
    const auto square = [this](std::size_t i, std::size_t c) {
      const double apart = static_cast<double>(in[i]) - static_cast<double>(mean[c]);
      return apart * apart;
    };
    const auto write = [count](const View<T>& to) {
      return [&to, count](std::size_t c, double sum) { to[c] = static_cast<T>(sum / count); };
    };
    sum_channels(axis, value, write(mean));
    sum_channels(axis, square, write(var));
  }
};

template <class T>
struct ChannelDotCall {
  View<const T> a;
  View<const T> b;
  View<const T> mean;  // may be empty
  View<T> out;
  Axis axis;

  void operator()() const {
    const auto product = [this](std::size_t i, std::size_t c) {
      return static_cast<double>(a[i]) * static_cast<double>(b[i] - channel_value(mean, c));
    };
    sum_channels(axis, product,
                 [this](std::size_t c, double sum) { out[c] = static_cast<T>(sum); });
  }
};

// out[i] = of_channel(c)(i) for the places i of each channel c.
template <class T, class OfChannel>
void map_channels(const Axis& axis, T* out, const OfChannel& of_channel) {
  if (axis.count == 0 || axis.inner == 0) return;  // however many times
  for (std::size_t o = 0, at = 0; o < axis.outer; ++o) {
    if (axis.inner == 1) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < axis.count; ++c) out[at + c] = of_channel(c)(at + c);
      at += axis.count;
      continue;
    }
    for (std::size_t c = 0; c < axis.count; ++c, at += axis.inner) {
      const auto element = of_channel(c);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = at; i < at + axis.inner; ++i) out[i] = element(i);
    }
  }
}

template <class T>
struct ChannelAffineCall {
  View<const T> in;
  View<const T> mean;  // may be empty
  View<const T> scale;
  View<const T> shift;  // may be empty
  View<T> out;
  Axis axis;

  LOCKSTEP_HD auto of_channel(std::size_t c) const {
    return from(in.data, channel_value(mean, c), scale[c], channel_value(shift, c));
  }

  void operator()() const {
    // What is absent is read as zeros, since a choice would make a loop over channels slow.
    const std::vector<T> zeros(mean.size == 0 || shift.size == 0 ? axis.count : 0);
    const T* const middle = mean.size == 0 ? zeros.data() : mean.data;
    const T* const offset = shift.size == 0 ? zeros.data() : shift.data;
    map_channels(axis, out.data, [=, x = in.data, factor = scale.data](std::size_t c) {
      return from(x, middle[c], factor[c], offset[c]);
    });
  }

 private:
  LOCKSTEP_HD static auto from(const T* x, T middle, T factor, T offset) {
    return [=](std::size_t i) { return (x[i] - middle) * factor + offset; };
  }
};

}  // namespace lockstep::detail
