// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/conv_geometry.hpp>
#include <lockstep/ops/kernels/padded_plane.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

namespace lockstep {
namespace padded_plane_test {

using detail::ConvGeometry;
using detail::PaddedPlane;

struct Dimension {
  std::int64_t size, kernel, stride, padding, dilation;

  auto all() const { return std::tie(size, kernel, stride, padding, dilation); }
  std::int64_t out() const {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

ConvGeometry geometry(const Dimension& height, const Dimension& width) {
  ConvGeometry g{};
  g.batch = g.in_channels = g.out_channels = g.groups = 1;
  std::tie(g.in_height, g.kernel_height, g.stride_height, g.padding_height, g.dilation_height) =
      height.all();
  std::tie(g.in_width, g.kernel_width, g.stride_width, g.padding_width, g.dilation_width) =
      width.all();
  g.out_height = height.out();
  g.out_width = width.out();
  return g;
}

std::vector<ConvGeometry> geometries() {
  const std::vector<Dimension> dimensions = {{7, 3, 1, 1, 1},  {8, 3, 2, 1, 1}, {9, 3, 3, 0, 2},
                                             {5, 2, 4, 2, 1},  {1, 3, 1, 1, 1}, {40, 5, 2, 3, 1},
                                             {13, 1, 2, 0, 1}, {2, 1, 5, 1, 1}};
  std::vector<ConvGeometry> all;
  for (const Dimension& height : dimensions) {
    for (const Dimension& width : dimensions) all.push_back(geometry(height, width));
  }
  return all;
}

// The element of the channel that a result sees through a kernel element; −1 for padding.
std::int64_t seen(const ConvGeometry& g, std::int64_t y, std::int64_t x, std::int64_t tap) {
  const std::int64_t row =
      y * g.stride_height + tap / g.kernel_width * g.dilation_height - g.padding_height;
  const std::int64_t column =
      x * g.stride_width + tap % g.kernel_width * g.dilation_width - g.padding_width;
  const bool inside = row >= 0 && row < g.in_height && column >= 0 && column < g.in_width;
  return inside ? row * g.in_width + column : -1;
}

template <class Visit>
void for_each_meeting(const ConvGeometry& g, const PaddedPlane& plane, const Visit& visit) {
  for (std::int64_t tap = 0; tap < g.taps(); ++tap) {
    for (std::int64_t y = 0; y < g.out_height; ++y) {
      for (std::int64_t x = 0; x < g.out_width; ++x) {
        const std::int64_t place = plane.place(g, tap) + y * g.stride_height * plane.row + x;
        visit(static_cast<std::size_t>(place), seen(g, y, x, tap));
      }
    }
  }
}

TEST(PaddedPlane, HasEachElementWhereResultsOfARowFindItSideBySide) {
  for (const ConvGeometry& g : geometries()) {
    const PaddedPlane plane(g, g.out_width);
    std::vector<float> channel(static_cast<std::size_t>(g.plane()));
    std::iota(channel.begin(), channel.end(), 1.0F);
    std::vector<float> padded(static_cast<std::size_t>(plane.size), 0.0F);
    plane.fill(g, channel.data(), padded.data());
    for_each_meeting(g, plane, [&](std::size_t place, std::int64_t element) {
      EXPECT_EQ(padded.at(place), static_cast<float>(element + 1));
    });
  }
}

TEST(PaddedPlane, GivesBackWhatItsResultsSee) {
  for (const ConvGeometry& g : geometries()) {
    const PaddedPlane plane(g, g.out_width + 3);
    std::vector<float> padded(static_cast<std::size_t>(plane.size), 0.0F);
    std::vector<float> sums(static_cast<std::size_t>(g.plane()), 0.0F);
    for_each_meeting(g, plane, [&](std::size_t place, std::int64_t element) {
      padded.at(place) += 1;
      if (element >= 0) sums[static_cast<std::size_t>(element)] += 1;
    });
    std::vector<float> channel(sums.size(), 0.0F);
    plane.read(g, padded.data(), channel.data());
    EXPECT_EQ(channel, sums);
  }
}

TEST(PaddedPlane, CopiesRunsOfAnyLength) {
  for (std::size_t count = 0; count < 20; ++count) {
    std::vector<double> from(count), to(count + 1, -1.0);
    std::iota(from.begin(), from.end(), 1.0);
    detail::copy_run(from.data(), to.data(), static_cast<std::int64_t>(count));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to[count], -1.0);
  }
}

}  // namespace padded_plane_test
}  // namespace lockstep
