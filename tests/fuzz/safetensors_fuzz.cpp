// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/io/random_state.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/module/state_dict.hpp>

#include "fuzz.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

// Whatever the bytes are, reading them as a safetensors file, or as a checkpoint, gives tensors or
// a DataError. What is read and written again is read again as the same.
namespace {

using lockstep::StateDict;
using lockstep::fuzz::give_up;
using lockstep::fuzz::MemoryFile;
namespace io = lockstep::io;

StateDict read_all(const io::SafetensorsFile& file) {
  StateDict all;
  for (const std::string& name : file.keys()) all.push_back({name, file.get_tensor(name)});
  return all;
}

bool same(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto bytes_of = [](const lockstep::Tensor& tensor) {
      return std::string_view(
          static_cast<const char*>(tensor.impl()->data()),
          static_cast<std::size_t>(tensor.numel()) * lockstep::element_size(tensor.dtype()));
    };
    if (a[i].name != b[i].name || a[i].tensor.dtype() != b[i].tensor.dtype() ||
        a[i].tensor.sizes() != b[i].tensor.sizes() ||
        bytes_of(a[i].tensor) != bytes_of(b[i].tensor)) {
      return false;
    }
  }
  return true;
}

void sort_by_name(StateDict& dict) {
  std::sort(dict.begin(), dict.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MemoryFile input;
  static const std::filesystem::path copy =
      std::filesystem::temp_directory_path() /
      ("safetensors_fuzz." + std::to_string(getpid()) + ".safetensors");
  input.set({reinterpret_cast<const char*>(bytes), size});
  try {
    const io::SafetensorsFile file(input.path());
    StateDict first = read_all(file);
    io::save_file(first, copy, file.metadata());
    const io::SafetensorsFile again(copy);
    StateDict second = read_all(again);
    std::filesystem::remove(copy);
    sort_by_name(first);
    sort_by_name(second);
    if (!same(first, second)) give_up("what was read, written and read again is not the same");
    if (again.metadata() != file.metadata()) give_up("the metadata is not the same");
  } catch (const lockstep::DataError&) {
    return 0;  // as it should be
  }
  try {
    const io::Checkpoint checkpoint = io::load_checkpoint(input.path());
    io::set_random_state(checkpoint.random);
  } catch (const lockstep::DataError&) {
  } catch (const lockstep::ValueError&) {  // a random state that is none
  }
  return 0;
}
