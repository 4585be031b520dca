# Debian packages, by CPack: `make deb`. Each is a component of MillpondInstall.cmake:
#   libmillpond0       the library; another one would be beside it after a change of the binary interface
#   libmillpond-dev    what programs are built with
#   millpond-provider  the execution provider, which fits the library of its own version only, so that
#                      it cannot be in libmillpond0
# SPDX-License-Identifier: Apache-2.0
set(MILLPOND_MAINTAINER "The Millpond developers <nobody@example.org>" CACHE STRING "Who makes the Debian packages")
set(runtime_package libmillpond${soversion})
set(development_package libmillpond-dev)
set(provider_package millpond-provider)

# What Debian wants of every package, its licence and its changelog, and manual pages packed with gzip.
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, where that is set
configure_file(cmake/debian_changelog.in ${installed}/changelog @ONLY)
find_program(MILLPOND_GZIP gzip)
if(MILLPOND_GZIP)
    execute_process(COMMAND ${MILLPOND_GZIP} -9nf ${installed}/changelog)
    execute_process(COMMAND ${MILLPOND_GZIP} -9nc ${PROJECT_SOURCE_DIR}/docs/man/millpond.h.3
                    OUTPUT_FILE ${installed}/millpond.h.3.gz)
endif()
foreach(component IN ITEMS runtime development provider)
    install(FILES cmake/debian_copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${${component}_package}
            RENAME copyright COMPONENT ${component}_debian EXCLUDE_FROM_ALL)
    install(FILES ${installed}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${${component}_package}
            COMPONENT ${component}_debian EXCLUDE_FROM_ALL)
endforeach()

install(FILES ${installed}/millpond.h.3.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man3
        COMPONENT development_debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millpond)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${MILLPOND_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime runtime_debian development development_debian provider provider_debian)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime_package})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
    "one pool of GPU memory for all libraries of a process
A library that programs and other libraries allocate GPU memory from, in the
order of streams. Where there is no GPU it emulates one on the CPU. NVIDIA's
driver and libraries are opened at run time, and only where they are.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ${development_package})
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${runtime_package} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "header of Millpond, a pool of GPU memory
The header millpond.h for C and C++, and what pkg-config and CMake need to
build programs with it.")

set(CPACK_DEBIAN_PROVIDER_PACKAGE_NAME ${provider_package})
set(CPACK_DEBIAN_PROVIDER_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PROVIDER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROVIDER_PACKAGE_DEPENDS "${runtime_package} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PROVIDER_DESCRIPTION
    "execution provider for ONNX Runtime on NVIDIA GPUs
A plugin that programs with ONNX Runtime 1.26 or newer register by its path,
/usr/lib/*/millpond/libonnxruntime_providers_cuda_plugin.so. It runs models on
an NVIDIA GPU, or on one that is emulated on the CPU.")

include(CPack)
foreach(component IN ITEMS runtime development provider)
    cpack_add_component(${component} GROUP ${component})
    cpack_add_component(${component}_debian GROUP ${component})
endforeach()
