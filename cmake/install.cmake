# SPDX-License-Identifier: Apache-2.0

# Installs the headers and the package config, so that find_package(lockstep) gives a consumer the
# same target, lockstep::lockstep, as add_subdirectory does.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/lockstep")

if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.23)
  install(TARGETS lockstep EXPORT lockstep-targets FILE_SET HEADERS FILE_SET special_headers)
else()
  install(TARGETS lockstep EXPORT lockstep-targets)
  install(DIRECTORY include/lockstep TYPE INCLUDE FILES_MATCHING PATTERN "*.[hi]pp" PATTERN "*.inc")
endif()

install(
  EXPORT lockstep-targets
  NAMESPACE lockstep::
  DESTINATION "${package_dir}"
  FILE lockstep-targets.cmake
)

configure_package_config_file(
  cmake/lockstep-config.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config.cmake"
  INSTALL_DESTINATION "${package_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR
)
# Headers only: the same package serves every architecture.
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake"
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT
)
install(
  FILES
    "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config.cmake"
    "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake"
    cmake/FindCBLAS.cmake
    cmake/FindCUDNN.cmake
    cmake/FindNCCL.cmake
    cmake/lockstep-compiled.cmake
    cmake/lockstep-cuda.cmake
    cmake/lockstep-mpi.cmake
    cmake/lockstep-torch.cmake
  DESTINATION "${package_dir}"
)
install(FILES LICENSE TYPE DOC)
