// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

// Launches a call that makes a tensor, from a list of the call's members.
namespace lockstep::detail {

// Stands for the result in the list.
struct TheResult {};

// Another tensor that the call writes: contiguous, and of the member's dtype. An undefined one is
// an empty View.
struct AlsoWritten {
  Tensor tensor;
};

// A tensor that the call reads: made contiguous, and f32 for half precision. An undefined one is an
// empty View.
struct ReadMember {
  PackedWide packed;

  template <class T>
  operator View<const T>() const {
    return optional_input<T>(packed);
  }
};

struct WrittenMember {
  const Tensor& tensor;
  const Stream& stream;

  template <class T>
  operator View<T>() const {
    return optional_output<T>(tensor, stream);
  }
};

inline ReadMember as_member(const Tensor& tensor, const Tensor&, const Stream&) {
  return {PackedWide(tensor)};
}
inline WrittenMember as_member(TheResult, const Tensor& result, const Stream& stream) {
  return {result, stream};
}
inline WrittenMember as_member(const AlsoWritten& also, const Tensor&, const Stream& stream) {
  return {also.tensor, stream};
}
template <class T>
const T& as_member(const T& number, const Tensor&, const Stream&) {
  return number;
}

// Launches the Call with these members; TheResult stands for `result`.
template <class Call, class... Members>
void launch_members(const Stream& stream, const Tensor& result, const Members&... members) {
  const auto launch_with = [&stream](const auto&... each) { launch_call(stream, Call{each...}); };
  launch_with(as_member(members, result, stream)...);
}

// Launches the Call, in f32 for half precision, and returns its result, of `shape`. Not recorded.
template <template <class> class Call, class... Members>
Tensor call_floating(const char* operation, const Shape& shape, const Tensor& first,
                     const Members&... members) {
  return compute_elements(first.dtype(), operation, [&]<class T>(T) {
    const Stream stream = current_stream(first.device());
    Tensor result = empty_on(stream, shape, dtype_of<T>);
    launch_members<Call<T>>(stream, result, first, members...);
    return result;
  });
}

}  // namespace lockstep::detail
