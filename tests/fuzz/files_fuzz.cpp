// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/csv.hpp>
#include <lockstep/data/idx.hpp>
#include <lockstep/data/npy.hpp>
#include <lockstep/error.hpp>

#include "fuzz.hpp"

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

// Data files: npy, idx and CSV, and the latter two compressed. A damaged one is a DataError, and so
// is one that asks for more memory than it has bytes for.
namespace {

namespace data = lockstep::data;
using lockstep::fuzz::Choice;
using lockstep::fuzz::MemoryFile;

std::string compressed(std::string_view bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void read_csv(const std::filesystem::path& path, bool header) {
  const data::CsvTable table = data::read_csv(
      path, {.header = header, .missing = data::CsvMissing::nan, .missing_values = {"?"}});
  (void)table.columns();
  for (std::int64_t i = 0; i < table.column_count(); ++i) {
    (void)table.strings(i);
    try {
      (void)table.column(i, lockstep::Dtype::i64);
    } catch (const lockstep::DataError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MemoryFile file;
  const Choice chosen(bytes, size);
  const bool compress = chosen.number & 8U;
  file.set(compress ? compressed(chosen.rest) : chosen.rest);
  try {
    switch (chosen.number % 4) {
      case 0:
        (void)data::read_npy(file.path());
        break;
      case 1:
        (void)data::read_idx(file.path());
        break;
      case 2:
        read_csv(file.path(), true);
        break;
      default:
        read_csv(file.path(), false);
    }
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
