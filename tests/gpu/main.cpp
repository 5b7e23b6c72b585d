// SPDX-License-Identifier: Apache-2.0

// Runs tests on CUDA devices and keeps a record, so that a test that takes the process or the GPU
// with it costs no more than itself. LOCKSTEP_TEST_RECORD names the file; to it are added
//
//   total N              tests that are going to run
//   begin NAME
//   passed NAME          or failed, skipped, crashed, or needs: the test names a device that is not
//                        there
//   end                  all have run
//
// each as it happens, with a reason behind the name. A test that the file names already does not
// run again. After an error that the GPU does not recover from the process ends, with status 3; so
// it does, by a signal, in a test that takes longer than LOCKSTEP_TEST_SECONDS.
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/devices.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace ls = lockstep;

std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

// What is wrong with a device, if waiting for it fails twice: an index that was out of range, say,
// is told once, by whoever waits first.
std::string broken_device() {
  std::string reason;
  for (int attempt = 0; attempt < 2; ++attempt) {
    reason.clear();
    for (const ls::Device device : ls::devices(ls::DeviceType::cuda)) {
      try {
        ls::synchronize(device);
      } catch (const std::exception& error) {
        reason = error.what();
      }
    }
  }
  return reason;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, 400);
}

bool names_missing_device(const std::string& message) {
  return message.find("device cuda:") != message.npos &&
         message.find("is out of range: there are ") != message.npos;
}

class Record final : public testing::EmptyTestEventListener {
 public:
  explicit Record(const std::string& path) : file_(path, std::ios::app) {}

  bool failed() const { return failed_; }

  // The process is about to end by an exception that no thread of the test has caught.
  void terminated(const std::string& message) {
    write(names_missing_device(message) ? "needs" : "crashed", test_, message);
  }

 private:
  void OnTestProgramStart(const testing::UnitTest& tests) override {
    write("total", std::to_string(tests.test_to_run_count()));
  }
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = name_of(test);
    write("begin", test_);
    ::alarm(seconds_);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string broken = broken_device();
    ::alarm(0);
    const testing::TestResult& result = *test.result();
    std::string failure;
    bool needs_devices = false;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const testing::TestPartResult& part = result.GetTestPartResult(i);
      if (!part.failed()) continue;
      const std::string message = part.message();
      needs_devices |= names_missing_device(message);
      if (!failure.empty()) continue;
      failure = message;
      if (part.file_name() != nullptr) {
        const std::string file = part.file_name();
        failure = file.substr(file.rfind('/') + 1) + ":" + std::to_string(part.line_number()) +
                  ": " + message;
      }
    }
    if (!broken.empty()) {
      write("failed", name_of(test), "the device is broken: " + broken);
      std::_Exit(3);
    }
    if (result.Passed()) {
      write("passed", name_of(test));
    } else if (result.Skipped()) {
      write("skipped", name_of(test));
    } else if (needs_devices) {
      write("needs", name_of(test));
    } else {
      failed_ = true;
      write("failed", name_of(test), failure);
    }
  }
  void OnTestProgramEnd(const testing::UnitTest&) override { write("end"); }

  void write(const char* what, const std::string& name = "", const std::string& reason = "") {
    file_ << what;
    if (!name.empty()) file_ << ' ' << name;
    if (!reason.empty()) file_ << ' ' << one_line(reason);
    file_ << std::endl;
  }

  static unsigned seconds_per_test() {
    const char* text = std::getenv("LOCKSTEP_TEST_SECONDS");
    return text ? static_cast<unsigned>(std::atoi(text)) : 60;
  }

  const unsigned seconds_ = seconds_per_test();
  std::ofstream file_;
  std::string test_;
  bool failed_ = false;
};

Record* record = nullptr;

[[noreturn]] void record_and_abort() {
  static std::atomic_flag entered = ATOMIC_FLAG_INIT;
  if (entered.test_and_set()) {
    while (true) ::pause();  // another thread is at it
  }
  std::string message = "std::terminate";
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "an exception that is no std::exception";
  }
  record->terminated(message);
  std::abort();
}

// Adds the tests that the record names to those that the filter leaves out.
void leave_out_tests_of(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, name;
    if (words >> what >> name && what == "begin") names.insert(name);
  }
  std::string filter = testing::GTEST_FLAG(filter);
  if (!names.empty() && filter.find('-') == filter.npos) filter += ":-";
  for (const std::string& name : names) filter += ":" + name;
  testing::GTEST_FLAG(filter) = filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) ls::set_host_device_count(8);
  if (ls::device_count(ls::DeviceType::cuda) == 0) {
    std::cerr << "no CUDA device: " << ls::no_cuda_reason() << '\n';
    return 77;
  }
  const char* const variable = std::getenv("LOCKSTEP_TEST_RECORD");
  if (variable == nullptr) return RUN_ALL_TESTS();
  const std::string path = variable;
  // A test may start this program again, to run that test.
  ::unsetenv("LOCKSTEP_TEST_RECORD");
  leave_out_tests_of(path);
  record = new Record(path);  // GoogleTest deletes it
  std::set_terminate(&record_and_abort);
  testing::UnitTest::GetInstance()->listeners().Append(record);
  const int status = RUN_ALL_TESTS();
  return record->failed() ? status : EXIT_SUCCESS;
}
