# Kernels for the host device: tools/kernel_gen.py writes one small C file for each kernel and choice
# of types, and a table of them that also carries the kernel text for NVRTC.
#
# The list of instances is made at configure time; editing the tables it comes from configures
# again. Editing kernel text only rebuilds: the files that are instances of it (found by depfiles)
# and the table with the text in it (by the command below).
# SPDX-License-Identifier: Apache-2.0
set(kernel_gen ${PROJECT_SOURCE_DIR}/tools/kernel_gen.py)
set(kernel_out ${CMAKE_BINARY_DIR}/generated)
set(kernel_command
    ${Python3_EXECUTABLE} ${kernel_gen} --source-dir ${PROJECT_SOURCE_DIR}/src --out ${kernel_out})

file(GLOB_RECURSE kernel_tables CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernel/*.txt
     ${PROJECT_SOURCE_DIR}/src/kernel/*.def)
file(GLOB_RECURSE kernel_texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernel/*.cu
     ${PROJECT_SOURCE_DIR}/src/kernel/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_gen} ${kernel_tables})

set(kernel_sample 1) # all are compiled
if(MILLPOND_HOST_KERNELS)
    set(kernel_sample ${MILLPOND_HOST_KERNELS_SAMPLE})
endif()
execute_process(COMMAND ${kernel_command} --sample ${kernel_sample} RESULT_VARIABLE kernel_status)
if(NOT kernel_status EQUAL 0)
    message(FATAL_ERROR "The kernel table was not generated: kernel_gen.py ended with ${kernel_status}, see above.")
endif()
file(STRINGS ${kernel_out}/instances.txt kernel_instances)
list(LENGTH kernel_instances kernel_count)
message(STATUS "Kernels: ${kernel_count} instances to compile")

# The command rewrites only what changed, so that an edited comment does not compile the table anew.
add_custom_command(
    OUTPUT ${kernel_out}/kernel_table.stamp
    BYPRODUCTS ${kernel_out}/kernel_table.c
    COMMAND ${kernel_command} --text-only
    COMMAND ${CMAKE_COMMAND} -E touch ${kernel_out}/kernel_table.stamp
    DEPENDS ${kernel_gen} ${kernel_texts} ${kernel_tables}
    COMMENT "Embedding kernel text"
    VERBATIM)

add_library(millpond_kernel STATIC ${kernel_out}/kernel_table.c ${kernel_out}/kernel_table.stamp)
# Kernel text follows CUDA's rules of arithmetic: a product and a sum are not fused unless asked, integers wrap, and no
# one reads errno or asks which operations were exact. One text for every type makes some warnings noise (x < 0 of an
# unsigned x), and the text kept for NVRTC is longer than the strings that C11 promises.
set(kernel_level -O3) # gcc 12 vectorises at -O3 only
# Some that trained models spend time in are vectorised in every build: without vectors products of integers take five
# times as long, functions four times, windows and norms of short rows more than twice. Where the compiler can make two
# of each function and choose as it is loaded, they are made for AVX2, too; sanitizers are not up to that.
set(kernel_busy ${kernel_instances})
list(FILTER kernel_busy INCLUDE REGEX
     "/(integer_[a-z0-9_]*|quantized_product|resize_nearest_2_b32|\
(pool_max|pool_mean|attention_(tile|(few|masked|mma|direct)[a-z0-9_]*)|norm_short|softmax_[a-z]*|\
reduce_(sum|max)|pointwise[12]_[a-z_]*|conv_few_[124]|conv_apart_2|dynamic_quantize|minmax|quantized_lstm)_f32)\\.c$")
include(CheckCSourceCompiles)
check_c_source_compiles(
    "__attribute__((target_clones(\"avx2\", \"default\"), flatten)) int twice(int x) { return x + x; }
     int main(void) { return twice(0); }" MILLPOND_HAS_CLONES)
set(kernel_wide -O3)
if(MILLPOND_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(kernel_level -O0) # there are so many that building them is all that matters
    set(kernel_wide)
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    set(kernel_level -O1) # compiles in two fifths of the time, and the tests, of small tensors, take no longer
endif()
if(MILLPOND_HAS_CLONES AND kernel_wide)
    list(APPEND kernel_wide -DK_HOST_WIDE)
endif()
# A choice that is the same for all elements, such as which Gelu, belongs outside of loops however long they are.
if(kernel_busy)
    set_source_files_properties(
        ${kernel_busy} PROPERTIES
        COMPILE_OPTIONS "${kernel_wide};$<$<C_COMPILER_ID:GNU>:--param=max-unswitch-insns=500>")
endif()
add_library(millpond_kernel_flags INTERFACE)
target_compile_options(
    millpond_kernel_flags
    INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -g1 -Wno-conversion -Wno-double-promotion
              -Wno-type-limits -Wno-overlength-strings
              ${kernel_level})
# Static libraries, so that link commands stay short; the table refers to every instance. They depend on nothing but the
# text and the flags above, and compute the same at each level, with and without assertions, so a second build may take
# those of the first: all of them, or those that it does not compile itself.
if(kernel_instances)
    add_library(millpond_host_kernels STATIC ${kernel_instances})
    target_link_libraries(millpond_host_kernels PRIVATE millpond_flags millpond_kernel_flags) # in this order
else()
    add_library(millpond_host_kernels INTERFACE)
endif()
if(MILLPOND_HOST_KERNELS)
    add_library(millpond_other_kernels STATIC IMPORTED)
    set_target_properties(millpond_other_kernels PROPERTIES IMPORTED_LOCATION ${MILLPOND_HOST_KERNELS})
    target_link_libraries(millpond_host_kernels INTERFACE millpond_other_kernels)
endif()
target_link_libraries(millpond_host_kernels INTERFACE m)
target_link_libraries(millpond_kernel PRIVATE millpond_flags millpond_kernel_flags PUBLIC millpond_host_kernels)
