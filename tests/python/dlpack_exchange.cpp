// SPDX-License-Identifier: Apache-2.0

// The side of lockstep in check_dlpack.py, a shared library with an interface in C.

#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dlpack.hpp>
#include <lockstep/tensor/from_blob.hpp>

#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;

namespace {

std::string last_error;        // of the function that failed last
std::vector<ls::Tensor> kept;  // the tensors that Python names by their place
int blobs = 0;                 // lent and not given back

ls::Dtype dtype_named(const std::string& name) {
  for (const ls::Dtype dtype :
       {ls::Dtype::f32, ls::Dtype::f64, ls::Dtype::f16, ls::Dtype::bf16, ls::Dtype::i64,
        ls::Dtype::i32, ls::Dtype::u8, ls::Dtype::boolean}) {
    if (name == ls::name(dtype)) return dtype;
  }
  throw std::runtime_error("there is no dtype " + name);
}

// What `body` returns, or `failed` where it throws.
template <class T, class Body>
T guarded(T failed, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

int keep(ls::Tensor tensor) {
  kept.push_back(std::move(tensor));
  return static_cast<int>(kept.size()) - 1;
}

ls::Tensor& at(int place) { return kept.at(static_cast<std::size_t>(place)); }

}  // namespace

extern "C" {

const char* exchange_error() { return last_error.c_str(); }

// The numbers 0 to 11 as a tensor of 3 × 4, or the transpose of its two middle columns.
int exchange_numbers(const char* dtype, int strided) {
  return guarded(-1, [&] {
    const ls::Tensor x =
        ls::arange(12, ls::Dtype::i64).to(ls::Dtype::f32).reshape({3, 4}).to(dtype_named(dtype));
    return keep(strided != 0 ? ls::transpose(x.narrow(1, 1, 2), 0, 1) : x);
  });
}

// A tensor on memory that is lent, which `exchange_blobs` counts.
int exchange_blob() {
  return guarded(-1, [] {
    auto* const data = new float[4]{1, 2, 3, 4};
    ++blobs;
    return keep(ls::from_blob(data, {4}, {.deleter = [](void* lent) {
                                --blobs;
                                delete[] static_cast<float*>(lent);
                              }}));
  });
}

int exchange_blobs() { return blobs; }

void* exchange_export(int place) {
  return guarded<void*>(nullptr, [&] { return ls::to_dlpack(at(place)); });
}

void exchange_delete(void* managed) {
  auto* const tensor = static_cast<ls::dlpack::DLManagedTensorVersioned*>(managed);
  if (tensor->deleter != nullptr) tensor->deleter(tensor);
}

// `copy`: 0 never, 1 always, -1 where it must be.
int exchange_import(void* managed, int copy) {
  return guarded(-1, [&] {
    ls::FromDlpackOptions options;
    if (copy >= 0) options.copy = copy != 0;
    return keep(
        ls::from_dlpack(static_cast<ls::dlpack::DLManagedTensorVersioned*>(managed), options));
  });
}

const char* exchange_dtype(int place) { return ls::name(at(place).dtype()); }

// The elements in row-major order, at most 12 of them.
int exchange_values(int place, double* values) {
  return guarded(-1, [&] {
    const std::vector<double> all = at(place).to(ls::Dtype::f64).to_vector<double>();
    std::memcpy(values, all.data(), all.size() * sizeof(double));
    return static_cast<int>(all.size());
  });
}

int exchange_fill(int place, double value) {
  return guarded(-1, [&] {
    at(place).fill_(value);
    return 0;
  });
}

void exchange_drop(int place) { at(place) = {}; }

}  // extern "C"
