# What a user may choose, and the defaults.
# SPDX-License-Identifier: Apache-2.0
set(MILLPOND_WITH_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO (ON where a toolkit's headers are found)")
set_property(CACHE MILLPOND_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MILLPOND_CUDA_PATH "" CACHE PATH "A CUDA toolkit to look in before CUDA_PATH, CUDA_HOME and /usr/local/cuda")
set(MILLPOND_ORT_HEADERS "" CACHE PATH "Folder of ONNX Runtime's own headers, to build against them instead of src/ep/abi/ort_abi.h")
set(MILLPOND_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=: 'address,undefined' or 'thread'")
set(MILLPOND_HOST_KERNELS "" CACHE FILEPATH "libmillpond_host_kernels.a of another build of this source; empty: compile them")
set(MILLPOND_HOST_KERNELS_SAMPLE 0 CACHE STRING "With MILLPOND_HOST_KERNELS: compile one in so many of each kernel's instances all the same; 0: none")
set(MILLPOND_PYTHON AUTO CACHE STRING "Build the Python package: ON, OFF, or AUTO (ON where Python's headers are found)")
set_property(CACHE MILLPOND_PYTHON PROPERTY STRINGS AUTO ON OFF)
set(MILLPOND_PYTHON_HEADERS "" CACHE PATH "Folder of Python.h; by default that of the Python in use")
# A compiler of another version than those of CI warns of other things, which should not keep users from building.
set(MILLPOND_IN_CI OFF)
if(DEFINED ENV{CI})
    set(MILLPOND_IN_CI ON)
endif()
option(MILLPOND_WERROR "Treat warnings as errors; by default where the environment has CI" ${MILLPOND_IN_CI})
option(MILLPOND_TESTS "Build the C tests" ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
if(MILLPOND_ORT_HEADERS AND NOT EXISTS ${MILLPOND_ORT_HEADERS}/onnxruntime_c_api.h)
    message(FATAL_ERROR "MILLPOND_ORT_HEADERS=${MILLPOND_ORT_HEADERS} holds no onnxruntime_c_api.h; "
                        "name the folder that does, or leave the option empty to use Millpond's own header.")
endif()
if(MILLPOND_HOST_KERNELS AND NOT EXISTS ${MILLPOND_HOST_KERNELS})
    message(FATAL_ERROR "MILLPOND_HOST_KERNELS=${MILLPOND_HOST_KERNELS} is not there; "
                        "build that first, or leave the option empty to compile the kernels.")
endif()
if(NOT MILLPOND_HOST_KERNELS_SAMPLE MATCHES "^[0-9]+$")
    message(FATAL_ERROR "MILLPOND_HOST_KERNELS_SAMPLE=${MILLPOND_HOST_KERNELS_SAMPLE}: expected a number, 0 or more")
endif()

find_package(Threads REQUIRED)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter) # generates the kernel table
