// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/torch/device.hpp>
#include <lockstep/torch/node.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::libtorch::detail {

using ModulePtr = std::shared_ptr<::torch::nn::Module>;
// Makes a module with the structure of another one.
using ModuleFactory = std::function<ModulePtr()>;

// A parameter or buffer and its name; a tied one has several entries.
struct ModuleTensor {
  std::string name;
  at::Tensor tensor;
  bool parameter;

  const char* kind() const { return parameter ? "parameter" : "buffer"; }
};

inline std::vector<ModuleTensor> tensors_of(const ::torch::nn::Module& module) {
  std::vector<ModuleTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({item.key(), item.value(), false});
  }
  return tensors;
}

inline void check_device(const std::vector<ModuleTensor>& tensors, Device device) {
  for (const ModuleTensor& tensor : tensors) {
    lockstep::check<ModuleError>(
        is_on(tensor.tensor, device), "module must have its parameters and buffers on device ",
        device, " (device_ids[0]) but found one of them on device: ", tensor.tensor.device().str(),
        " (", tensor.kind(), " \"", tensor.name, "\")");
  }
}

// Moves a module on the CPU to its device. A ModuleError for a module elsewhere.
inline void place(::torch::nn::Module& module, Device device) {
  const std::vector<ModuleTensor> tensors = tensors_of(module);
  const auto on_cpu = [](const auto& tensor) { return tensor.tensor.is_cpu(); };
  if (device.is_cuda() && std::all_of(tensors.begin(), tensors.end(), on_cpu)) {
    return module.to(at_device(device));
  }
  check_device(tensors, device);
}

// Throws a ModuleError unless a module that had the tensors `before` has the same ones `now`; the
// message ends with `advice`.
inline void check_same_tensors(const std::vector<ModuleTensor>& before,
                               const std::vector<ModuleTensor>& now, const char* advice) {
  for (std::size_t j = 0; j < now.size() && j < before.size(); ++j) {
    lockstep::check<ModuleError>(now[j].name == before[j].name, "a parameter or buffer has ",
                                 "been registered or removed (found \"", now[j].name,
                                 "\", expected \"", before[j].name, "\")", advice);
    lockstep::check<ModuleError>(now[j].tensor.is_same(before[j].tensor), now[j].kind(), " \"",
                                 now[j].name, "\" has been replaced", advice);
  }
  lockstep::check<ModuleError>(now.size() == before.size(), "the module has ", now.size(),
                               " parameters and buffers, but had ", before.size(), advice);
}

// Throws a ModuleError if a layer of one of these kinds uses another of the module's `tensors`, or
// a view of it, in place of its own weight, as by `out->weight = embedding->weight`: clone() would
// give it its own again.
template <class... Layer>
void check_own_weight(const ::torch::nn::Module& module, const std::string& name,
                      const std::vector<ModuleTensor>& tensors) {
  at::Tensor used;
  const auto look = [&used](const auto* layer) {
    if (layer != nullptr) used = layer->weight;
  };
  (look(dynamic_cast<const Layer*>(&module)), ...);
  if (!used.has_storage()) return;
  const auto shares = [&used](const at::Tensor& tensor) {
    return tensor.has_storage() && tensor.is_alias_of(used);
  };
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const at::Tensor* const own = parameters.find("weight");
  if (own != nullptr && shares(*own)) return;
  for (const ModuleTensor& tensor : tensors) {
    lockstep::check<ModuleError>(
        !shares(tensor.tensor), "\"", name, "\" has \"", tensor.name,
        "\" for its weight, which a copy by clone() would not have: give a factory that makes a "
        "module with the same weights tied");
  }
}

// Restores LibTorch's random numbers on the CPU: copying a module draws values that are not kept.
class RandomStateScope : lockstep::detail::NonCopyable {
 public:
  RandomStateScope() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~RandomStateScope() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// A copy of a module for another device, which follows its tensors, what is trained, and the modes
// of its sub-modules. On the module's own device it shares the memory of the parameters.
class ModuleCopy {
 public:
  ModuleCopy(const ModulePtr& original, const std::vector<ModuleTensor>& tensors, Device device,
             const ModuleFactory& factory)
      : module_(copied(original, tensors, device, factory)),
        modules_(original->modules()),
        copied_modules_(module_->modules()) {
    lockstep::check<ModuleError>(modules_.size() == copied_modules_.size(), "a copy of ",
                                 original->name(), " has ", copied_modules_.size(),
                                 " modules in it, but the module has ", modules_.size());
    bind(original->name(), tensors, factory != nullptr);
  }

  const ModulePtr& module() const { return module_; }
  const at::Tensor& tensor(std::size_t j) const { return bindings_[places_[j]].copy; }
  // True if LibTorch has counted a change of tensor j, or of its copy, since the last refresh.
  bool has_changed(std::size_t j) const { return bindings_[places_[j]].has_changed(); }
  // True if no tensor has changed its shape or dtype.
  bool fits() const {
    return std::all_of(bindings_.begin(), bindings_.end(), [](const auto& b) { return b.fits(); });
  }

  // Brings the copy up to date.
  void refresh() {
    const at::NoGradGuard guard;
    for (Binding& binding : bindings_) binding.refresh();
    bool same_modes = true;
    for (std::size_t m = 0; m < modules_.size(); ++m) {
      same_modes = same_modes && modules_[m]->is_training() == copied_modules_[m]->is_training();
    }
    // Outer modules first, since train() also sets all modules within.
    for (std::size_t m = 0; m < modules_.size() && !same_modes; ++m) {
      copied_modules_[m]->train(modules_[m]->is_training());
    }
  }

  // Makes gradients of the copy of tensor j flow to a node, or nowhere if it is null.
  void connect(std::size_t j, const NodePtr& node) {
    Binding& binding = bindings_[places_[j]];
    at::Tensor& copy = binding.copy;
    if (node && copy.grad_fn() == node) return;  // a tied tensor's second name
    // Makes it an untrained leaf, and no longer a view if reset() has made it one.
    copy.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
    if (!node) return;
    binding.fit();
    autograd::impl::set_gradient_edge(copy, {node, node->add_input_metadata(copy)});
  }

  // Throws a ModuleError if a parameter that shares the module's memory was written since the last
  // refresh.
  void check_shared() const {
    for (const Binding& binding : bindings_) {
      lockstep::check<ModuleError>(
          !binding.shares() || !binding.has_changed(), "forward has written into parameter \"",
          binding.name,
          "\", which all replicas on one device share: make what forward changes a buffer");
    }
  }

 private:
  using Versions = std::array<std::optional<std::int64_t>, 2>;

  // A tensor of the copy, and the original that it follows.
  struct Binding {
    std::string name;  // the first of several, if tied
    at::Tensor original;
    at::Tensor copy;
    bool parameter;
    Versions versions = {};  // as of the last refresh

    // Parameters on one device share memory, and so cannot be out of date.
    bool shares() const {
      return parameter && original.has_storage() && copy.device() == original.device();
    }

    Versions versions_now() const { return {version_of(original), version_of(copy)}; }
    // True if a change of either was counted since the last refresh.
    bool has_changed() const { return versions != versions_now(); }

    // Nothing tells whether the original's values have changed: LibTorch's SGD and batch_norm write
    // without counting a change. What is not counted there is not counted here either, so a graph
    // that has saved the tensor stays as valid as the plain module's.
    void refresh() {
      fit();
      if (!shares()) {
        (has_changed() ? copy : copy.variable_data()).copy_(original, /*non_blocking=*/true);
      }
      versions = versions_now();
    }

    // Gives the copy memory like the original's, or shares the original's, if needed.
    void fit() {
      const c10::InferenceMode normal(false);
      if (!shares()) {
        if (!fits()) copy.set_data(at::empty_like(original, copy.device()));
      } else if (!fits() || !is_storage_of(copy, original.storage()) ||
                 copy.storage_offset() != original.storage_offset() ||
                 copy.strides() != original.strides()) {
        copy.set_data(original.detach());
        autograd::impl::set_version_counter(copy, autograd::impl::version_counter(original));
      }
    }
    bool fits() const {
      return copy.sizes() == original.sizes() && copy.scalar_type() == original.scalar_type();
    }
  };

  static bool is_storage_of(const at::Tensor& tensor, const c10::Storage& storage) {
    return tensor.has_storage() &&
           tensor.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
  }

  // The tensor's count of changes, if it has one.
  static std::optional<std::int64_t> version_of(const at::Tensor& tensor) {
    const c10::VariableVersion& counter = autograd::impl::version_counter(tensor);
    if (!counter.enabled()) return std::nullopt;
    return static_cast<std::int64_t>(counter.current_version());
  }

  // Makes the copy. Its tensors are normal ones even in inference mode.
  static ModulePtr copied(const ModulePtr& original, const std::vector<ModuleTensor>& tensors,
                          Device device, const ModuleFactory& factory) {
    const c10::InferenceMode normal(false);
    const at::AutoGradMode grad(true);
    ModulePtr copy;
    if (factory) {
      copy = factory();
      lockstep::check<ModuleError>(copy && copy != original,
                                   "the factory has to make a new module each time");
      copy->to(at_device(device));
    } else {
      namespace nn = ::torch::nn;
      for (const auto& part : original->named_modules()) {
        check_own_weight<nn::LinearImpl, nn::BilinearImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl,
                         nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
                         nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(*part.value(),
                                                                           part.key(), tensors);
      }
      try {
        copy = original->clone(at_device(device));
      } catch (const c10::Error& error) {
        lockstep::detail::fail<ModuleError>(
            "the module ", original->name(), " cannot be copied for ", device,
            ": derive it from torch::nn::Cloneable, or give a factory that makes one of its "
            "structure: [] { return std::make_shared<Net>(); }. LibTorch says: ",
            error.what_without_backtrace());
      }
    }
    const auto& made = *copy;
    const auto& wanted = *original;
    lockstep::check<ModuleError>(typeid(made) == typeid(wanted),
                                 factory ? "the factory for " : "the clone() of ", original->name(),
                                 " makes a ", copy->name());
    return copy;
  }

  // Pairs the tensors by name, or by order if clone() has changed names, as a Sequential's clone()
  // does, which numbers its modules.
  void bind(const std::string& name, const std::vector<ModuleTensor>& originals, bool by_factory) {
    const std::vector<ModuleTensor> copies = tensors_of(*module_);
    std::unordered_map<std::string, std::size_t> named;
    for (std::size_t j = 0; j < copies.size(); ++j) named.emplace(copies[j].name, j);
    lockstep::check<ModuleError>(copies.size() == originals.size(), "a copy of ", name, " has ",
                                 copies.size(), " parameters and buffers, but the module has ",
                                 originals.size());
    const auto has = [&named](const ModuleTensor& tensor) { return named.contains(tensor.name); };
    const bool by_order = !by_factory && !std::all_of(originals.begin(), originals.end(), has);
    const auto is_alike = [](const ModuleTensor& a, const ModuleTensor& b) {
      return a.parameter == b.parameter && a.tensor.sizes() == b.tensor.sizes();
    };
    std::unordered_map<const c10::TensorImpl*, std::size_t> bound;
    for (std::size_t j = 0; j < originals.size(); ++j) {
      const ModuleTensor& original = originals[j];
      lockstep::check<ModuleError>(by_order ? is_alike(copies[j], original) : has(original),
                                   "a copy of ", name, " has no ", original.kind(), " \"",
                                   original.name, '"');
      const at::Tensor& copy = copies[by_order ? j : named.at(original.name)].tensor;
      lockstep::check<ModuleError>(
          !copy.is_same(original.tensor), "a copy of ", name, " has the module's own ",
          original.kind(), " \"", original.name,
          "\", as its copy constructor would give it: a copy needs its own");
      const auto [place, is_new] = bound.emplace(copy.unsafeGetTensorImpl(), bindings_.size());
      places_.push_back(place->second);
      if (is_new) {
        bindings_.push_back({original.name, original.tensor, copy, original.parameter});
        continue;
      }
      const Binding& other = bindings_[place->second];
      lockstep::check<ModuleError>(other.original.is_same(original.tensor), "a copy of ", name,
                                   " has one tensor for \"", other.name, "\" and \"", original.name,
                                   "\", which are two in the module");
    }
  }

  ModulePtr module_;
  std::vector<ModulePtr> modules_;         // of the original, outer before inner
  std::vector<ModulePtr> copied_modules_;  // in the same order
  std::vector<Binding> bindings_;          // one for each tensor
  std::vector<std::size_t> places_;        // in bindings_, of each of the original's names
};

}  // namespace lockstep::libtorch::detail
