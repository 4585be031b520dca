# What `make install` (cmake --install) puts where, in components that are Debian packages, too:
#   runtime        libmillpond.so.<version> and the link with its SONAME
#   development    the header, the link for linkers, millpond.pc, find_package(Millpond)
#   provider       the plugin, in a folder of its own, since programs open it by path; beside it a link
#                  to the library, because that is where it looks ($ORIGIN)
#   documentation  licence, documents, manual pages
# and apart from these `python`, what the wheel takes beside the Python files. No file names where it
# was installed, so that the tree may be moved.
# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(installed ${CMAKE_CURRENT_BINARY_DIR}/generated/install)
set(provider_dir ${CMAKE_INSTALL_LIBDIR}/millpond)
set(provider_file ${provider_dir}/libonnxruntime_providers_cuda_plugin.so)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Millpond)
set_target_properties(millpond PROPERTIES EXPORT_NAME millpond)
target_include_directories(millpond INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# ---- libraries ----

install(
    TARGETS millpond
    EXPORT MillpondTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS onnxruntime_providers_cuda_plugin LIBRARY DESTINATION ${provider_dir} COMPONENT provider)
get_target_property(soversion millpond SOVERSION)
file(MAKE_DIRECTORY ${installed})
file(CREATE_LINK ../libmillpond.so.${soversion} ${installed}/libmillpond.so.${soversion} SYMBOLIC)
install(FILES ${installed}/libmillpond.so.${soversion} DESTINATION ${provider_dir} COMPONENT provider)

# ---- for those who build with it ----

install(DIRECTORY include/millpond DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(cmake/millpond.pc.in ${installed}/millpond.pc @ONLY)
install(FILES ${installed}/millpond.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(EXPORT MillpondTargets NAMESPACE Millpond:: DESTINATION ${config_dir} COMPONENT development)
configure_package_config_file(
    cmake/MillpondConfig.cmake.in ${installed}/MillpondConfig.cmake INSTALL_DESTINATION ${config_dir}
    PATH_VARS provider_file NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may break.
write_basic_package_version_file(${installed}/MillpondConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${installed}/MillpondConfig.cmake ${installed}/MillpondConfigVersion.cmake
        DESTINATION ${config_dir} COMPONENT development)

# ---- documents ----

install(FILES docs/man/millpond.h.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT documentation)
install(FILES docs/man/millpond.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT documentation)
install(FILES LICENSE README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN man EXCLUDE PATTERN site EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documentation)

# ---- Debian packages: cpack, or `make deb` ----

include(MillpondPackage)
