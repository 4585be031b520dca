# Finds the headers that the CUDA backend is compiled with: a toolkit's, or those of NVIDIA's Python
# packages. No library of CUDA is linked. Sets MILLPOND_CUDA and MILLPOND_CUDA_INCLUDES, and defines
# MILLPOND_WITH_CUDA as 0 or 1 for every target.
# SPDX-License-Identifier: Apache-2.0
set(MILLPOND_CUDA OFF)
set(MILLPOND_CUDA_INCLUDES)
set(cuda_missing)

if(NOT MILLPOND_WITH_CUDA STREQUAL "OFF")
    execute_process(
        COMMAND ${Python3_EXECUTABLE} -c
                "import glob, sys; print(';'.join(d for p in sys.path if p for d in sorted(glob.glob(p + '/nvidia/*/include'))), end='')"
        OUTPUT_VARIABLE cuda_wheel_includes)
    foreach(header IN ITEMS cuda.h nvrtc.h cublasLt.h cudnn.h)
        find_path(
            MILLPOND_HEADER_${header} ${header}
            HINTS ${MILLPOND_CUDA_PATH}/include $ENV{CUDA_PATH}/include $ENV{CUDA_HOME}/include
                  /usr/local/cuda/include ${cuda_wheel_includes})
        mark_as_advanced(MILLPOND_HEADER_${header})
        if(MILLPOND_HEADER_${header})
            list(APPEND MILLPOND_CUDA_INCLUDES ${MILLPOND_HEADER_${header}})
        else()
            list(APPEND cuda_missing ${header})
        endif()
    endforeach()
    # For ranges on a profiler's timeline; welcome, not needed.
    find_path(
        MILLPOND_HEADER_nvtx3 nvtx3/nvToolsExt.h
        HINTS ${MILLPOND_CUDA_PATH}/include $ENV{CUDA_PATH}/include $ENV{CUDA_HOME}/include
              /usr/local/cuda/include ${cuda_wheel_includes})
    mark_as_advanced(MILLPOND_HEADER_nvtx3)
    if(MILLPOND_HEADER_nvtx3)
        list(APPEND MILLPOND_CUDA_INCLUDES ${MILLPOND_HEADER_nvtx3})
    endif()
    list(REMOVE_DUPLICATES MILLPOND_CUDA_INCLUDES)
    list(JOIN cuda_missing ", " cuda_missing)
    if(NOT cuda_missing)
        set(MILLPOND_CUDA ON)
    elseif(MILLPOND_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "MILLPOND_WITH_CUDA=ON, but ${cuda_missing} cannot be found. Install a CUDA toolkit "
                            "with cuDNN's headers, or name one with CUDA_PATH or -DMILLPOND_CUDA_PATH=DIR.")
    endif()
endif()

if(MILLPOND_CUDA)
    message(STATUS "CUDA backend: built with the headers in ${MILLPOND_CUDA_INCLUDES}")
    target_compile_definitions(millpond_flags INTERFACE MILLPOND_WITH_CUDA=1)
else()
    if(cuda_missing)
        message(STATUS "CUDA backend: left out, since ${cuda_missing} cannot be found")
    else()
        message(STATUS "CUDA backend: left out, since MILLPOND_WITH_CUDA=OFF")
    endif()
    target_compile_definitions(millpond_flags INTERFACE MILLPOND_WITH_CUDA=0)
endif()
