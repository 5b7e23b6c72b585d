# SPDX-License-Identifier: Apache-2.0

# What somebody is told who asks for a component that there is not, links one that he has not asked for,
# has a LibTorch of another ABI, or mixes header-only files with such as only declare. The arguments are
# those that CMakeLists.txt beside this file passes.

cmake_minimum_required(VERSION 3.22)

# Runs a command, which must fail and say `expected`.
function(expect_refusal expected)
  execute_process(
    COMMAND ${ARGN}
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
    RESULT_VARIABLE result
  )
  string(REGEX REPLACE "[ \n]+" " " line "${output}")
  string(FIND "${line}" "${expected}" place)
  if(result EQUAL 0 OR place EQUAL -1)
    message(FATAL_ERROR "Expected a refusal with '${expected}', got ${result} and:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/prefix")
execute_process(
  COMMAND "${CMAKE_COMMAND}" --install "${BINARY_DIR}" --prefix "${prefix}"
  OUTPUT_QUIET
  COMMAND_ERROR_IS_FATAL ANY
)

function(expect_refused_project name components library expected)
  file(
    WRITE "${WORK_DIR}/${name}/CMakeLists.txt"
    "cmake_minimum_required(VERSION 3.22...3.31)\n"
    "project(mistake LANGUAGES CXX)\n"
    "find_package(lockstep REQUIRED ${components})\n"
    "add_executable(program main.cpp)\n"
    "target_link_libraries(program PRIVATE ${library})\n"
  )
  file(WRITE "${WORK_DIR}/${name}/main.cpp" "int main() {}\n")
  expect_refusal(
    "${expected}"
    "${CMAKE_COMMAND}" -S "${WORK_DIR}/${name}" -B "${WORK_DIR}/${name}/build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix}"
  )
endfunction()

expect_refused_project(
  unknown "COMPONENTS gpu" lockstep::lockstep
  "lockstep has no component \"gpu\": it has cuda, mpi, torch and compiled."
)
expect_refused_project(
  forgotten "" lockstep::mpi
  "program links lockstep::mpi, which comes with find_package(lockstep REQUIRED COMPONENTS mpi)"
)
expect_refused_project(
  forgotten_nccl "" lockstep::nccl
  "which comes with find_package(lockstep REQUIRED COMPONENTS cuda) where NCCL is installed"
)
expect_refused_project(
  forgotten_cuda "COMPONENTS compiled" lockstep::cuda_compiled
  "which comes with find_package(lockstep REQUIRED COMPONENTS cuda compiled) in a project(… LANGUAGES CXX CUDA)"
)

# A component that nobody requires may be missing, what other packages' files leave behind is no matter, and
# nothing is looked through for modules.
file(
  WRITE "${WORK_DIR}/zlib/zlib-config.cmake"
  "set(PACKAGE_PREFIX_DIR \"${WORK_DIR}\")\n"
  "add_library(ZLIB::ZLIB INTERFACE IMPORTED)\n"
)
file(WRITE "${WORK_DIR}/cblas/cblas-config.cmake" "add_library(cblas INTERFACE IMPORTED)\n")
file(
  WRITE "${WORK_DIR}/optional/CMakeLists.txt"
  "cmake_minimum_required(VERSION 3.22...3.31)\n"
  "project(optional LANGUAGES CXX)\n"
  "set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)\n"
  "find_package(lockstep REQUIRED COMPONENTS compiled OPTIONAL_COMPONENTS torch mpi cuda)\n"
  "if(lockstep_torch_FOUND OR lockstep_mpi_FOUND OR lockstep_cuda_FOUND)\n"
  "  message(FATAL_ERROR \"found what is not there\")\n"
  "endif()\n"
  "if(NOT EXISTS \"\${lockstep_INCLUDE_DIR}/lockstep/lockstep.hpp\" OR NOT TARGET CBLAS::CBLAS)\n"
  "  message(FATAL_ERROR \"\${lockstep_INCLUDE_DIR} has no lockstep.hpp, or there is no CBLAS::CBLAS\")\n"
  "endif()\n"
  "get_target_property(scanned lockstep_compiled CXX_SCAN_FOR_MODULES)\n"
  "if(NOT scanned STREQUAL \"OFF\")\n"
  "  message(FATAL_ERROR \"CXX_SCAN_FOR_MODULES is \${scanned}\")\n"
  "endif()\n"
)
execute_process(
  COMMAND
    "${CMAKE_COMMAND}" -S "${WORK_DIR}/optional" -B "${WORK_DIR}/optional/build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DZLIB_DIR=${WORK_DIR}/zlib" "-DCBLAS_DIR=${WORK_DIR}/cblas"
    -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  OUTPUT_QUIET
  COMMAND_ERROR_IS_FATAL ANY
)

set(old_torch "${WORK_DIR}/old_torch")
file(
  WRITE "${old_torch}/TorchConfig.cmake"
  "set(TORCH_CXX_FLAGS \"-D_GLIBCXX_USE_CXX11_ABI=0\")\n"
  "set(TORCH_INSTALL_PREFIX \"${old_torch}\")\n"
)
file(GLOB_RECURSE torch_module "${prefix}/*/lockstep-torch.cmake")
expect_refusal(
  "lockstep: this LibTorch (${old_torch}) has the old ABI of libstdc++"
  "${CMAKE_COMMAND}" "-DTorch_DIR=${old_torch}" -P "${torch_module}"
)

file(WRITE "${WORK_DIR}/declares.cpp" "#include <lockstep/error.hpp>\n")
file(WRITE "${WORK_DIR}/header_only.cpp" "#include <lockstep/error.hpp>\nint main() {}\n")
set(compile "${CXX_COMPILER}" -std=c++20 "-I${prefix}/include" -c)
execute_process(
  COMMAND ${compile} -DLOCKSTEP_SEPARATE_COMPILATION declares.cpp
  WORKING_DIRECTORY "${WORK_DIR}"
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(
  COMMAND ${compile} header_only.cpp
  WORKING_DIRECTORY "${WORK_DIR}"
  COMMAND_ERROR_IS_FATAL ANY
)
expect_refusal(
  "link_lockstep_compiled_or_define_LOCKSTEP_SEPARATE_COMPILATION_in_no_file"
  "${CXX_COMPILER}" "${WORK_DIR}/declares.o" "${WORK_DIR}/header_only.o" -o "${WORK_DIR}/program"
)
