# The Python package: the C extension millpond._core, and in <build>/python/millpond the package as the
# wheel has it, with links to its Python files and libraries. PYTHONPATH=<build>/python finds it.
#
# The extension is built for the stable ABI of CPython 3.10 (core.h), so one build serves every later
# version. Of Python only headers are needed; its symbols are the interpreter's, found at load time.
# SPDX-License-Identifier: Apache-2.0
set(MILLPOND_BUILT_PYTHON OFF)
set(python_missing)
if(NOT MILLPOND_PYTHON STREQUAL "OFF")
    set(python_include ${MILLPOND_PYTHON_HEADERS})
    if(NOT python_include)
        execute_process(
            COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('include'), end='')"
            OUTPUT_VARIABLE python_include)
    endif()
    if(EXISTS ${python_include}/Python.h)
        set(MILLPOND_BUILT_PYTHON ON)
    elseif(MILLPOND_PYTHON STREQUAL "ON")
        message(FATAL_ERROR "MILLPOND_PYTHON=ON, but ${python_include}/Python.h is not there; install Python's headers "
                            "(Debian: apt install python3-dev)")
    else()
        set(python_missing ", since ${python_include}/Python.h is not there (Debian: apt install python3-dev)")
    endif()
endif()
if(NOT MILLPOND_BUILT_PYTHON)
    message(STATUS "Python package: left out${python_missing}")
    return()
endif()
message(STATUS "Python package: built with the headers in ${python_include}")

file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/src/*.c)
set(python_package ${CMAKE_BINARY_DIR}/python/millpond)

add_library(millpond_core MODULE ${python_sources})
# C++ exceptions pass through the functions that CuPy and PyTorch call.
set(throwing_sources ${python_sources})
list(FILTER throwing_sources INCLUDE REGEX "/(cupy|torch)_[a-z]+\\.c$")
set_source_files_properties(${throwing_sources} PROPERTIES COMPILE_OPTIONS -fexceptions)
target_include_directories(millpond_core PRIVATE ${PROJECT_SOURCE_DIR}/python/src)
# Debian's headers include those of the architecture from the folder above.
target_include_directories(millpond_core SYSTEM PRIVATE ${python_include} ${python_include}/..)
target_compile_options(millpond_core PRIVATE -fvisibility=hidden)
# Last, since the interpreter's symbols stay undefined, which millpond_flags forbids.
target_link_libraries(
    millpond_core PRIVATE millpond_flags millpond ${CMAKE_DL_LIBS} Threads::Threads -Wl,-z,undefs)
set_target_properties(
    millpond_core
    PROPERTIES PREFIX "" OUTPUT_NAME _core.abi3 LIBRARY_OUTPUT_DIRECTORY ${python_package}
               BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/lib")

# ---- the package in the build folder ----

# Links, so that an edited file counts at once.
function(millpond_link_package)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/src
         ${PROJECT_SOURCE_DIR}/python/src/millpond/*.py ${PROJECT_SOURCE_DIR}/python/src/millpond/*.pyi
         ${PROJECT_SOURCE_DIR}/python/src/millpond/*.tsv ${PROJECT_SOURCE_DIR}/python/src/millpond/py.typed)
    file(GLOB_RECURSE old LIST_DIRECTORIES false ${python_package}/*)
    foreach(link IN LISTS old)
        if(IS_SYMLINK ${link} AND NOT EXISTS ${link}) # its file is gone
            file(REMOVE ${link})
        endif()
    endforeach()
    foreach(file IN LISTS files)
        get_filename_component(folder ${CMAKE_BINARY_DIR}/python/${file} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/src/${file} ${CMAKE_BINARY_DIR}/python/${file} SYMBOLIC)
    endforeach()
    file(CREATE_LINK ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${python_package}/lib SYMBOLIC)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${python_package}/include SYMBOLIC)
endfunction()
millpond_link_package()

# ---- what the wheel takes beside the Python files: cmake --install --component python ----

install(TARGETS millpond_core LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS millpond LIBRARY DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL NAMELINK_SKIP)
install(TARGETS onnxruntime_providers_cuda_plugin LIBRARY DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY include/ DESTINATION include COMPONENT python EXCLUDE_FROM_ALL)
if(SKBUILD)
    # In place of the link that a wheel cannot hold: what -lmillpond finds, and reads as a text.
    get_target_property(soversion millpond SOVERSION)
    file(WRITE ${CMAKE_BINARY_DIR}/generated/wheel/libmillpond.so "INPUT(libmillpond.so.${soversion})\n")
    install(FILES ${CMAKE_BINARY_DIR}/generated/wheel/libmillpond.so DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
    install(FILES docs/man/millpond.1 DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT python EXCLUDE_FROM_ALL)
endif()
