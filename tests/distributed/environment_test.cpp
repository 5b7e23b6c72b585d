// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace dist = lockstep::distributed;
using ls::testing::throws;

namespace environment_test {

// The launch variables are those given and no others, until destroyed.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE",
          "MPI_LOCALRANKID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
          "SLURM_NTASKS"}) {
      const char* value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

void expect_place(const char* launcher, int rank, int world_size, int local_rank) {
  const dist::LaunchEnvironment place = dist::launch_environment();
  EXPECT_EQ(place.launcher, launcher);
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.world_size, world_size);
  EXPECT_EQ(place.local_rank, local_rank);
}

TEST(LaunchEnvironment, IsAWorldOfOneWithoutVariables) {
  const Environment environment{};
  expect_place("", 0, 1, 0);
  EXPECT_EQ(dist::launch_environment().master_addr, "");
  EXPECT_EQ(dist::launch_environment().master_port, 0);
  EXPECT_EQ(dist::LaunchEnvironment().master_port, 0);
}

TEST(LaunchEnvironment, ReadsEachLaunchersVariables) {
  {
    const Environment environment{{"RANK", "3"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"MASTER_ADDR", "node7"},
                                  {"MASTER_PORT", "29500"}};
    expect_place("torchrun", 3, 8, 1);
    EXPECT_EQ(dist::launch_environment().master_addr, "node7");
    EXPECT_EQ(dist::launch_environment().master_port, 29500);
  }
  {
    const Environment environment{{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}};
    expect_place("Open MPI", 2, 4, 0);
  }
  {
    const Environment environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}};
    expect_place("MPICH", 1, 2, 1);
  }
  {
    const Environment environment{
        {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_LOCALID", "2"}};
    expect_place("Slurm", 5, 6, 2);
  }
}

TEST(LaunchEnvironment, RankAndWorldSizeComeFirstThenOpenMpiMpichAndSlurm) {
  const Environment environment{{"SLURM_PROCID", "5"},
                                {"SLURM_STEP_NUM_TASKS", "6"},
                                {"PMI_RANK", "4"},
                                {"PMI_SIZE", "5"},
                                {"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"RANK", "2"},
                                {"WORLD_SIZE", "3"}};
  expect_place("torchrun", 2, 3, 0);
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  expect_place("Open MPI", 3, 4, 0);
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  expect_place("MPICH", 4, 5, 0);
  ::unsetenv("PMI_RANK");
  ::unsetenv("PMI_SIZE");
  expect_place("Slurm", 5, 6, 0);
}

TEST(LaunchEnvironment, ABatchScriptsOwnProcessIsNoTaskOfSlurm) {
  const Environment environment{
      {"SLURM_NTASKS", "6"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  expect_place("", 0, 1, 0);
}

TEST(LaunchEnvironment, BadVariablesAreErrorsThatNameThem) {
  const auto fails = [](std::initializer_list<std::pair<const char*, const char*>> variables,
                        const auto&... parts) {
    const Environment environment(variables);
    EXPECT_TRUE(throws<ls::ValueError>([] { (void)dist::launch_environment(); }, parts...));
  };
  fails({{"RANK", "0"}, {"MASTER_ADDR", "node7"}},
        "environment variable WORLD_SIZE expected, but not set. Of torchrun's there is RANK, "
        "MASTER_ADDR, but not WORLD_SIZE, LOCAL_RANK, MASTER_PORT: unset what is left");
  fails({{"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
        "environment variable RANK expected, but not set. Of torchrun's there is "
        "WORLD_SIZE, but not RANK");
  fails({{"PMI_SIZE", "2"}, {"MASTER_ADDR", "node7"}},
        "Of MPICH's there is PMI_SIZE, but not PMI_RANK, MPI_LOCALRANKID");
  fails({{"SLURM_STEP_NUM_TASKS", "2"}}, "environment variable SLURM_PROCID expected");
  fails({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is \"2\"", "from 0 to 1");
  fails({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is \"-1\"");
  fails({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is \"0\"");
  fails({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}, "WORLD_SIZE is \"2x\"");
  fails({{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is \"\"");
  fails({{"PMI_RANK", "0"}, {"PMI_SIZE", "99999999999"}}, "PMI_SIZE");
  fails({{"MASTER_PORT", "65536"}}, "MASTER_PORT is \"65536\"", "from 1 to 65535");
  fails({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "a"}}, "LOCAL_RANK");
}

TEST(InitProcessGroup, WithoutALauncherIsAWorldOfOne) {
  const Environment environment{};
  EXPECT_FALSE(dist::is_initialized());
  EXPECT_TRUE(throws<ls::Error>([] { (void)dist::default_group(); }, "has not been initialized",
                                "run, in which only the ranks' own threads have one"));
  const dist::ProcessGroup group = dist::init_process_group();
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.device(), ls::Device());
  EXPECT_EQ(dist::get_world_size(), 1);
  EXPECT_TRUE(throws<ls::Error>([] { (void)dist::init_process_group(); }, "already"));
  const ls::Tensor value = ls::full({2}, 3);
  group.all_reduce(value, dist::ReduceOp::avg).wait();
  EXPECT_EQ(value.to_vector<float>(), (std::vector<float>{3, 3}));
  dist::destroy_process_group();
  EXPECT_FALSE(dist::is_initialized());
  dist::destroy_process_group();
}

TEST(InitProcessGroup, OtherProcessesNeedACarrier) {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  EXPECT_TRUE(throws<ls::Error>([] { (void)dist::init_process_group(); }, "rank 1 of 2", "Open MPI",
                                "lockstep/mpi.hpp"));
  EXPECT_FALSE(dist::is_initialized());
}

}  // namespace environment_test
