// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/data/files/rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/reflect.hpp>
#include <lockstep/module/walk/structure.hpp>
#include <lockstep/parallel/nested/leaves.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::data {

// Makes a batch of samples of type T, by `static Batch apply(std::vector<T>&& samples)`. Specialise
// it for types that collate does not know, or for another batch.
template <class T>
struct Collate {};

namespace detail {

namespace nested = lockstep::detail::nested;

template <class T>
auto collate_at(std::vector<T> samples, const nested::Path& path);

template <class T>
using BatchOf = decltype(collate_at(std::declval<std::vector<T>>(), nested::Path("")));

// The batch of the samples' children at `step`.
template <class Child, class T, class Step>
auto collate_child(std::vector<T>& samples, const Step& step, const nested::Path& path) {
  std::vector<Child> column;
  column.reserve(samples.size());
  for (T& sample : samples) column.push_back(std::move(step(sample)));
  return collate_at(std::move(column), path);
}

// Throws unless `state(sample)`, called `what` in the message, is the same for all samples.
template <class T, class State>
void check_alike(const std::vector<T>& samples, const nested::Path& path, const char* what,
                 State state) {
  for (std::size_t i = 1; i < samples.size(); ++i) {
    check<ValueError>(state(samples[i]) == state(samples[0]), "collate: ", path, ": ", what, " is ",
                      state(samples[0]), " in sample 0 of the batch, but ", state(samples[i]),
                      " in sample ", i);
  }
}

template <class T>
Tensor collate_numbers(const std::vector<T>& samples, const nested::Path& path) {
  using Stored =
      std::conditional_t<std::floating_point<T>,
                         std::conditional_t<std::same_as<T, float>, float, double>, std::int64_t>;
  std::vector<Stored> values;
  values.reserve(samples.size());
  for (const T sample : samples) {
    values.push_back(static_cast<Stored>(sample));
    if constexpr (!std::floating_point<T>) {
      check<ValueError>(values.back() >= 0 || sample < T{}, "collate: ", path, " is ",
                        static_cast<std::uint64_t>(sample), " in sample ", values.size() - 1,
                        " of the batch, more than i64 can hold");
    }
  }
  return tensor(values);
}

template <class T>
auto collate_children(std::vector<T>& /*samples*/, const nested::Path& /*path*/) {
  static_assert(!std::is_same_v<T, T>,
                "lockstep: collate does not know samples of this type: use tensors, numbers, "
                "strings, pairs, tuples, arrays, vectors, maps, optionals, variants and plain "
                "structs of them, or specialise lockstep::data::Collate");
}

template <template <class...> class Row, class... T>
requires std::same_as<Row<T...>, std::tuple<T...>> || std::same_as<Row<T...>, std::pair<T...>>
auto collate_children(std::vector<Row<T...>>& samples, const nested::Path& path) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return Row<BatchOf<T>...>{
        collate_child<T>(samples, nested::Element<i>(), nested::Path(path, i))...};
  }
  (std::index_sequence_for<T...>());
}

template <class T, std::size_t count>
auto collate_children(std::vector<std::array<T, count>>& samples, const nested::Path& path) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<BatchOf<T>, count>{
        collate_child<T>(samples, nested::At{i}, nested::Path(path, i))...};
  }
  (std::make_index_sequence<count>());
}

template <class T>
auto collate_children(std::vector<std::vector<T>>& samples, const nested::Path& path) {
  check_alike(samples, path, "the number of elements",
              [](const std::vector<T>& sample) { return sample.size(); });
  std::vector<BatchOf<T>> batch;
  batch.reserve(samples[0].size());
  for (std::size_t i = 0; i < samples[0].size(); ++i) {
    batch.push_back(collate_child<T>(samples, nested::At{i}, nested::Path(path, i)));
  }
  return batch;
}

// A batch without keys yet for such maps, with their order or hash.
template <class Key, class T, class Order, class Allocator>
auto empty_batch(const std::map<Key, T, Order, Allocator>& sample) {
  return std::map<Key, BatchOf<T>, Order>(sample.key_comp());
}
template <class Key, class T, class Hash, class Equal, class Allocator>
auto empty_batch(const std::unordered_map<Key, T, Hash, Equal, Allocator>& sample) {
  return std::unordered_map<Key, BatchOf<T>, Hash, Equal>(0, sample.hash_function(),
                                                          sample.key_eq());
}

template <template <class...> class Map, class Key, class T, class... More>
requires std::same_as<Map<Key, T, More...>, std::map<Key, T, More...>> ||
    std::same_as<Map<Key, T, More...>, std::unordered_map<Key, T, More...>>
auto collate_children(std::vector<Map<Key, T, More...>>& samples, const nested::Path& path) {
  check_alike(samples, path, "the number of keys", [](const auto& map) { return map.size(); });
  auto batch = empty_batch(samples[0]);
  nested::for_each_child(samples[0], [&](std::string_view name, auto&, const auto& step) {
    const auto find = [&](auto& sample) -> T& {
      const auto found = sample.find(step.key);
      check<ValueError>(found != sample.end(), "collate: ", path, " has the key ", name,
                        " in sample 0 of the batch, but not in sample ", &sample - samples.data());
      return found->second;
    };
    batch.emplace(step.key, collate_child<T>(samples, find, nested::Path(path, name)));
  });
  return batch;
}

template <class T>
std::optional<BatchOf<T>> collate_children(std::vector<std::optional<T>>& samples,
                                           const nested::Path& path) {
  check_alike(samples, path, "whether there is a value",
              [](const std::optional<T>& sample) { return sample.has_value(); });
  if (!samples[0]) return std::nullopt;
  return collate_child<T>(samples, nested::Held(), path);
}

template <class... T>
auto collate_children(std::vector<std::variant<T...>>& samples, const nested::Path& path) {
  check_alike(samples, path, "the alternative that it holds",
              [](const auto& sample) { return sample.index(); });
  std::optional<std::variant<BatchOf<T>...>> batch;
  nested::for_each_child(samples[0], [&]<class Child, std::size_t i>(nested::Unnamed, Child&,
                                                                     nested::Alternative<i> step) {
    batch.emplace(std::in_place_index<i>, collate_child<Child>(samples, step, path));
  });
  return std::move(*batch);
}

// True if the batch has n members or is not a plain struct: then its constructor decides.
template <class Batch, std::size_t n>
inline constexpr bool has_as_many_members = true;
template <class Batch, std::size_t n>
requires lockstep::detail::is_reflectable<Batch>
inline constexpr bool has_as_many_members<Batch, n> = lockstep::detail::member_count<Batch> == n;

// The batches of the members: in the struct that T names, or in a T if it can hold them (as
// tensors, for instance), else in a tuple.
template <class T>
auto collate_structs(std::vector<T>& samples, const nested::Path& path) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    using Members = decltype(lockstep::detail::tie_members(samples[0]));
    const auto part = [&]<std::size_t member>(std::integral_constant<std::size_t, member>) {
      using Member = std::tuple_element_t<member, Members>;
      return collate_child<std::remove_cvref_t<Member>>(
          samples, nested::Member<member>(),
          nested::Path(path, lockstep::detail::member_name<T, member>));
    };
    std::tuple<decltype(part(std::integral_constant<std::size_t, i>()))...> batch{
        part(std::integral_constant<std::size_t, i>())...};
    if constexpr (requires { typename T::Batch; }) {
      using Batch = typename T::Batch;
      constexpr bool fits = has_as_many_members<Batch, sizeof...(i)>;
      static_assert(fits,
                    "lockstep: the Batch that this sample names needs as many members as the "
                    "sample, in the same order: one for the batch of each");
      if constexpr (fits) {
        return std::apply([](auto&... members) { return Batch{std::move(members)...}; }, batch);
      } else {
        return Batch();
      }
    } else if constexpr ((std::is_same_v<std::tuple_element_t<i, Members>,
                                         std::tuple_element_t<i, decltype(batch)>&> &&
                          ...)) {
      T result = std::move(samples[0]);
      lockstep::detail::tie_members(result) = std::move(batch);
      return result;
    } else {
      return batch;
    }
  }
  (std::make_index_sequence<lockstep::detail::member_count<T>>());
}

template <class T>
auto collate_at(std::vector<T> samples, const nested::Path& path) {
  if constexpr (requires { Collate<T>::apply(std::move(samples)); }) {
    return Collate<T>::apply(std::move(samples));
  } else if constexpr (std::derived_from<T, Tensor>) {
    return stack_rows(std::vector<Tensor>(samples.begin(), samples.end()), path);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return collate_numbers(samples, path);
  } else if constexpr (std::same_as<T, std::string>) {
    return samples;
  } else if constexpr (nested::form_of<T> == nested::Form::members) {
    return collate_structs(samples, path);
  } else {
    return collate_children(samples, path);
  }
}

}  // namespace detail

// Makes a batch of samples, element by element. Tensors are stacked along a new first dimension;
// numbers and enumerators become a 1-dimensional tensor (f64 for double, f32 for float, else i64);
// strings become a std::vector.
//
// Pairs, tuples, arrays, vectors, maps, optionals and variants become the same of batches; the
// samples must agree in sizes, keys, presence of values and alternatives. A plain struct whose
// members have the types of their batches, such as Tensor, becomes that struct. Any other struct
// becomes a tuple of its members' batches, or a struct that it names itself, with as many members
// in the same order:
//
//   struct Images { ls::Tensor pixels, labels; };
//   struct Image { ls::Tensor pixels; std::int64_t label; using Batch = Images; };
//
// Specialise Collate for samples of other types.
//
// **Torch counterpart.** torch.utils.data.default_collate.
// **Backward.** Not recorded.
// **Threads and exceptions.** A ShapeError, DtypeError or DeviceError for tensors that do not
// match, a ValueError for samples that differ in structure and for a number that i64 cannot hold;
// each names the place in the batch and the samples. A ValueError for no samples.
template <class T>
auto collate(std::vector<T> samples) {
  check<ValueError>(!samples.empty(), "collate: there are no samples");
  return detail::collate_at(std::move(samples), detail::nested::Path("batch"));
}

}  // namespace lockstep::data
