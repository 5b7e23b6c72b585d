// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/release.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/storage.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

class Node;
class RemovableHandle;  // autograd/grad_hooks.hpp
class Tensor;
enum class MemoryFormat : std::uint8_t;  // tensor/memory_format.hpp

// The properties of a new tensor. **Torch counterpart.** torch::TensorOptions.
struct TensorOptions {
  Dtype dtype = Dtype::f32;
  Device device = {};
  bool requires_grad = false;
};

namespace detail {
struct LeafHooks;
struct TensorImpl;
}  // namespace detail

// A handle on an n-dimensional array: copies name the same array, and views share its memory.
//
// **Torch counterpart.** torch::Tensor.
// **Devices and streams.** A tensor lives on one device. Operations on it are issued to the calling
// thread's current stream of that device; other streams that use it must be ordered and recorded.
// **Threads and exceptions.** Threads may share handles as they may shared_ptrs, and data as any
// memory. For an undefined tensor `backward` is an AutogradError, and all other members but
// `defined`, `is_same` and `impl` are a ValueError.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const = delete;  // ask defined(), or for the value: item<bool>()
  // True if both are the same variable, not merely equal.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  const Shape& sizes() const;
  std::int64_t size(std::int64_t dim) const;
  const Shape& strides() const;  // in elements
  std::int64_t dim() const;
  std::int64_t numel() const;
  Dtype dtype() const;
  Device device() const;
  bool is_contiguous() const;
  bool is_contiguous(MemoryFormat format) const;
  TensorOptions options() const;

  // Sparse tensors, which list some rows and are zero elsewhere (defined in tensor/sparse.hpp). For
  // a dense tensor these members are a ValueError, except `is_sparse` and `to_dense`.
  bool is_sparse() const;
  // True if each row is listed once, in ascending order.
  bool is_coalesced() const;
  // The same tensor coalesced; itself if it is already.
  //
  // Values of a row are added in the order in which they are listed, so the bits are always the
  // same.
  //
  // **Torch counterpart.** Tensor.coalesce.
  // **Devices and streams.** Waits for the indices, which the host sorts; the values are added up
  // on the device's current stream.
  Tensor coalesce() const;
  // The listed rows, as a tensor [1, n] of i64, and their values [n, …]: new views each time, so
  // that changing the values changes the tensor.
  //
  // **Torch counterpart.** Tensor.indices and Tensor.values.
  // **Threads and exceptions.** A ValueError unless the tensor is coalesced.
  Tensor indices() const;
  Tensor values() const;
  // The same numbers in a dense tensor; a dense tensor gives itself. Not recorded.
  //
  // **Torch counterpart.** Tensor.to_dense.
  Tensor to_dense() const;

  // True if the tensor's memory is page-locked (defined in tensor/pin_memory.hpp).
  //
  // **Torch counterpart.** torch.Tensor.is_pinned.
  bool is_pinned() const;
  // The tensor in page-locked memory: itself if it is there already or there is no GPU, else a
  // contiguous copy.
  //
  // **Torch counterpart.** torch.Tensor.pin_memory.
  // **Backward.** Not recorded: an AutogradError for a tensor that requires grad while recording is
  // on.
  // **Threads and exceptions.** A DeviceError for a tensor that is not on plain `cpu`.
  Tensor pin_memory() const;

  // Host pointers to the first element. Both wait for the device's current stream. The mutable one
  // counts as a change, and also waits for copies that still read the memory. Call mark_changed()
  // after writing later through a pointer that you have kept.
  //
  // **Torch counterpart.** torch::Tensor::const_data_ptr, mutable_data_ptr.
  // **Threads and exceptions.** A DeviceError unless the data is on the CPU (plain or host device),
  // a DtypeError unless it is of type T, an OperandError for a sparse tensor.
  template <Element T>
  const T* const_data_ptr() const;
  template <Element T>
  T* mutable_data_ptr() const;

  // Records that work on `stream` uses this tensor's memory: until that work has ended, the memory
  // is neither reused nor overwritten by other streams.
  //
  // **Torch counterpart.** torch.Tensor.record_stream.
  void record_stream(const Stream& stream) const;

  // The number of changes of the data, which a tensor and its views share.
  std::uint64_t version() const;
  // Counts a change that was made without the library's knowledge.
  void mark_changed() const;

  // Autograd (defined in autograd/), as torch's members of these names.
  bool requires_grad() const;
  const Tensor& requires_grad_(bool requires_grad = true) const;
  bool is_leaf() const;
  // True if it was made in inference mode (autograd/inference_mode.hpp).
  bool is_inference() const;
  const std::shared_ptr<Node>& grad_fn() const;
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  Tensor detach() const;
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const;
  // Registers `hook(leaf)`, which is called each time a backward pass has added to this leaf's
  // `grad`.
  //
  // Hooks are called in the order of their registration. A hook may read and replace the gradient.
  // It must not hold a handle on the tensor, which would keep both for ever.
  //
  // **Torch counterpart.** Tensor.register_post_accumulate_grad_hook.
  // **Devices and streams.** On the stream of the gradient, which is current.
  // **Backward.** Not called by autograd::grad, or when no gradient arrives.
  // **Threads and exceptions.** Called by a thread of the pass, never at the same time as another
  // hook of the same device's leaves. Its exception ends the pass and is thrown by backward. An
  // AutogradError unless the tensor is a leaf that requires grad; a ValueError for an empty
  // function.
  // **Example.** w.register_post_accumulate_grad_hook([](const ls::Tensor& p) { step(p); });
  RemovableHandle register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const;

  // Registers `hook(gradient)`, which is called each time a backward pass has computed the gradient
  // of this tensor, a leaf or not, and before it is used. If the hook returns a defined tensor,
  // that is used instead.
  //
  // Hooks are called in the order of their registration. They belong to the operation that made the
  // tensor and live as long as the graph, so a hook must not hold a handle on the tensor. A hook
  // must not change the gradient in place.
  //
  // **Torch counterpart.** Tensor.register_hook.
  // **Devices and streams.** On the stream of the gradient, which is current.
  // **Backward.** Called by autograd::grad as well, which returns what the hooks leave. (In torch
  // not if a gradient beyond this tensor was also asked for.)
  // **Threads and exceptions.** As above, but hooks of a tensor that is not a leaf must not be
  // added or removed while another thread runs a pass over it. A ShapeError, DtypeError or
  // DeviceError for a replacement that does not match the gradient.
  // **Example.** y.register_hook([](const ls::Tensor& gradient) { return gradient * 0.5; });
  template <class Hook>
  RemovableHandle register_hook(Hook hook) const;
  // Makes backward add this tensor's gradient, as the hooks leave it, to its `grad`, as it does for
  // leaves, for which this does nothing.
  //
  // **Torch counterpart.** Tensor.retain_grad.
  // **Threads and exceptions.** An AutogradError unless the tensor requires grad.
  void retain_grad() const;

  // Replaces the memory, shape, dtype and device of this variable by those of `other`, in place,
  // like torch's assignment to `.data`: every handle sees it, and an existing optimiser stays
  // valid. Not recorded. The gradient stays; if it no longer fits, a backward that adds to it is an
  // AutogradError or a DeviceError. Whether the tensor is an inference tensor does not change.
  void set_data(const Tensor& other) const;

  // Differentiable (defined in ops/).

  // The tensor on another device; itself if it is there already.
  //
  // **Torch counterpart.** torch.Tensor.to(device).
  // **Devices and streams.** Copies on the destination's current stream, after what is on the
  // source's. A copy to plain host memory has ended when this returns.
  // **Backward.** Brings the gradient back to the source's device.
  Tensor to(Device device) const;
  // The elements converted to a dtype; the tensor itself if it has that dtype. Integers drop the
  // fraction; a NaN, and a number out of range for i64 or i32, becomes the least integer; u8 takes
  // an i64 modulo 256. No gradient flows back from integers or booleans.
  //
  // **Torch counterpart.** torch.Tensor.to(dtype).
  Tensor to(Dtype dtype) const;
  // A contiguous copy with memory of its own.
  //
  // **Torch counterpart.** torch.Tensor.clone.
  Tensor clone() const;
  Tensor contiguous() const;
  Tensor contiguous(MemoryFormat format) const;
  Tensor reshape(const Shape& shape) const;
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor t() const;
  Tensor permute(const Shape& dims) const;
  Tensor expand(const Shape& shape) const;
  Tensor squeeze() const;
  Tensor squeeze(std::int64_t dim) const;
  Tensor unsqueeze(std::int64_t dim) const;
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;
  // select(0, index). The result is const, since assigning to it would not change this tensor;
  // copy_ and += do.
  const Tensor operator[](std::int64_t index) const;
  Tensor sum(const Shape& dims = {}, bool keepdim = false) const;
  Tensor mean(const Shape& dims = {}, bool keepdim = false) const;

  // In place, not recorded (ops/inplace.hpp): an AutogradError if a gradient would be wrong.
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const;
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& add_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& add_(Scalar number) const;
  const Tensor& sub_(Scalar number) const;
  const Tensor& mul_(Scalar factor) const;
  const Tensor& div_(Scalar divisor) const;

  // Numbers for the program (defined in ops/to.hpp).

  // The value of a tensor of one element, converted to T; waits for the device.
  //
  // **Torch counterpart.** torch.Tensor.item.
  // **Threads and exceptions.** A ShapeError unless there is one element; a DtypeError if the value
  // is out of range for T, or, without a T, for an i64 that no double equals.
  template <class T>
  T item() const;
  double item() const;
  // All elements in row-major order, copied to the host; waits for the device.
  //
  // **Torch counterpart.** torch.Tensor.tolist.
  // **Threads and exceptions.** A DtypeError unless the tensor's elements are of type T.
  template <Element T>
  std::vector<T> to_vector() const;

  const std::shared_ptr<detail::TensorImpl>& impl() const { return impl_; }

 private:
  // Each returns the variable, or throws what the one above does, or
  const detail::TensorImpl& get() const;      // an OperandError if it is undefined
  const detail::TensorImpl& shaped() const;   // a ModuleError if it has no shape yet
  const detail::TensorImpl& strided() const;  // an OperandError if it is sparse

  std::shared_ptr<detail::TensorImpl> impl_;
};

namespace detail {

// Where the elements of a variable lie.
struct Elements {
  std::shared_ptr<Storage> storage;
  // Usually a non-owning pointer into `storage`; copy both together.
  std::shared_ptr<VersionCounter> version;
  std::int64_t offset = 0;  // in elements
  Shape shape;
  Shape strides;
  Dtype dtype = Dtype::f32;
  std::int64_t numel = 0;
  bool contiguous = true;
  bool uninitialized = false;  // a parameter that has no shape yet (module/parameter.hpp)
};

// A variable: where its elements lie, and its place in the autograd graph.
//
// Threads: one thread at a time uses a variable. Only `grad`, `accumulator` and `hooks`, which
// concurrent backward passes reach through a shared leaf, are guarded by `mutex`.
struct TensorImpl : NonCopyable, Elements {
  ~TensorImpl() { release(std::move(grad_fn)); }

  bool sparse = false;           // a SparseImpl
  bool sparse_gradient = false;  // its gradients are expected to be sparse

  // True if `hooks` may have some `before`. Relaxed: a pass that runs while the first one is added
  // need not call it.
  std::atomic<bool> has_hooks_before{false};
  std::uint32_t replaced = 0;  // how often set_data has changed its memory or layout
  bool inference = false;      // made in inference mode, or a view of what was
  bool requires_grad = false;
  std::size_t output_nr = 0;  // which output of grad_fn this is
  std::shared_ptr<Node> grad_fn;
  std::mutex mutex;
  Tensor grad;
  std::weak_ptr<Node> accumulator;
  std::shared_ptr<const LeafHooks> hooks;  // null for none (autograd/grad_hooks.hpp)

  // Null if the storage has no memory, as a storage without elements may.
  void* data() const;
};

// A sparse variable: `indices` say which rows of a tensor of this shape `values` are. Values of a
// row that is listed several times add up. The storage and the version are those of `values`.
struct SparseImpl : TensorImpl {
  Tensor indices;          // [1, rows listed], i64
  Tensor values;           // [rows listed, shape[1], …]
  bool coalesced = false;  // each row is listed once, and the indices ascend
};

// Out of line, so that little is inlined with every use of a tensor.
[[noreturn, gnu::cold]] void fail_undefined();
[[noreturn, gnu::cold]] void fail_uninitialized(const TensorImpl& impl);
[[noreturn, gnu::cold]] void fail_sparse(const TensorImpl& impl);

// Throws unless the tensor that `operation` calls `name` is defined.
void check_defined(const char* operation, const char* name, const Tensor& tensor);

// A new variable on the memory of `base` with the same version, in no graph.
Tensor make_view(const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset);

inline Tensor make_view(const Tensor& base) {
  return make_view(base, base.sizes(), base.strides(), base.impl()->offset);
}
// The same for the part [start, start + length) of a dimension.
Tensor part_of(const Tensor& x, std::size_t dim, std::int64_t start, std::int64_t length);

// True if two tensors have the same memory, layout and dtype.
bool same_memory(const Tensor& a, const Tensor& b);

// What const_data_ptr and mutable_data_ptr return for elements of `dtype`.
const void* read_on_host(const Tensor& tensor, Dtype dtype);
void* write_on_host(const Tensor& tensor, Dtype dtype);

// The elements of a contiguous tensor as a kernel reads them.
template <class T>
View<const T> input(const Tensor& tensor) {
  return {static_cast<const T*>(tensor.impl()->data()),
          static_cast<std::size_t>(tensor.impl()->numel)};
}

// Called before `stream` writes to the tensor: makes it wait for the recorded streams, and counts
// the change.
void order_write(const Tensor& tensor, const Stream& stream);

// The elements of a contiguous tensor as a kernel on `stream` writes them, after `order_write`.
template <class T>
View<T> output(const Tensor& tensor, const Stream& stream) {
  order_write(tensor, stream);
  return {static_cast<T*>(tensor.impl()->data()), static_cast<std::size_t>(tensor.impl()->numel)};
}

inline void fail_undefined() {
  fail<OperandError>("the tensor is undefined: made without a value, or moved from");
}

}  // namespace detail

inline const Shape& Tensor::sizes() const { return shaped().shape; }
inline const Shape& Tensor::strides() const { return strided().strides; }
inline std::int64_t Tensor::dim() const { return static_cast<std::int64_t>(shaped().shape.size()); }
inline std::int64_t Tensor::numel() const { return shaped().numel; }
inline Dtype Tensor::dtype() const { return get().dtype; }
inline Device Tensor::device() const { return get().storage->device(); }
inline bool Tensor::is_contiguous() const { return strided().contiguous; }
inline bool Tensor::is_inference() const { return get().inference; }

inline TensorOptions Tensor::options() const { return {.dtype = dtype(), .device = device()}; }

template <Element T>
const T* Tensor::const_data_ptr() const {
  return static_cast<const T*>(detail::read_on_host(*this, dtype_of<T>));
}

template <Element T>
T* Tensor::mutable_data_ptr() const {
  return static_cast<T*>(detail::write_on_host(*this, dtype_of<T>));
}

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/tensor.ipp>
#endif
