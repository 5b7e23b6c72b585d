// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/devices.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)

// This program is its own tool: NVTX finds it under a name, and hands it the table of functions
// that a tool fills in.
#define NVTX_STATIC_INJECTION_IMPL
extern "C" {
extern int (*InitializeInjectionNvtx2_fnptr)(const void* (*export_table)(std::uint32_t id));
}
#include <nvtx3/nvToolsExt.h>

namespace lockstep {
namespace nvtx_test {

using Names = std::vector<std::string>;

// What the tool has heard from the threads of this program while it was to listen.
struct Tool {
  std::mutex mutex;  // guards all below
  bool listens = false;
  Names heard;
  std::string domain;

  static Tool& instance() {
    static Tool& tool = *new Tool;
    return tool;
  }

  void hear(const std::string& what) {
    const std::lock_guard lock(mutex);
    if (listens) heard.push_back(what);
  }
  void listen(bool on) {
    const std::lock_guard lock(mutex);
    listens = on;
  }
  Names take() {
    const std::lock_guard lock(mutex);
    return std::exchange(heard, {});
  }
};

nvtxDomainHandle_t create_domain(const char* name) {
  Tool::instance().domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&Tool::instance());
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  EXPECT_EQ(domain, reinterpret_cast<nvtxDomainHandle_t>(&Tool::instance()));
  EXPECT_EQ(attributes->messageType, NVTX_MESSAGE_TYPE_ASCII);
  Tool::instance().hear(attributes->message.ascii);
  return 0;
}
int pop(nvtxDomainHandle_t) {
  Tool::instance().hear("end");
  return 0;
}

int attach(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

TEST(Nvtx, RangesHaveTheSameNamesInTheTool) {
  ASSERT_GT(device_count(DeviceType::cuda), 0);
  const Tensor batch = ones({6, 2});
  Tool::instance().listen(true);
  {
    const profile::RecordFunction range(std::string("step"));
    (void)comm::scatter(batch, {"cuda:0"});
  }
  Tool::instance().listen(false);
  EXPECT_EQ(Tool::instance().take(), (Names{"step", "scatter", "copy", "end", "end", "end"}));
  EXPECT_EQ(Tool::instance().domain, "lockstep");
}

TEST(Nvtx, RangesThatAreRecordedAreThereAsWell) {
  ASSERT_GT(device_count(DeviceType::cuda), 0);
  profile::Profiler profiler;
  Tool::instance().listen(true);
  { const profile::RecordFunction range("both"); }
  Tool::instance().listen(false);
  EXPECT_EQ(Tool::instance().take(), (Names{"both", "end"}));
  ASSERT_EQ(profiler.events().size(), 1U);
  EXPECT_EQ(profiler.events()[0].name, "both");
}

}  // namespace nvtx_test
}  // namespace lockstep

extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = &lockstep::nvtx_test::attach;
}

#else

TEST(Nvtx, RangesHaveTheSameNamesInTheTool) {
  GTEST_SKIP() << "lacks the header nvtx3/nvToolsExt.h of the CUDA toolkit";
}

#endif
