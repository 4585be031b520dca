# Compiler and linker flags, in one interface library that every target of ours links.
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Assertions stay in every build type but Release.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

set(MILLPOND_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wcast-qual -Wundef -Wdouble-promotion -Wwrite-strings)

add_library(millpond_flags INTERFACE)
target_compile_definitions(millpond_flags INTERFACE _GNU_SOURCE MILLPOND_VERSION="${PROJECT_VERSION}")
target_include_directories(
    millpond_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(
    millpond_flags
    INTERFACE ${MILLPOND_WARNINGS} $<$<BOOL:${MILLPOND_WERROR}>:-Werror>
              -fno-semantic-interposition -fstack-protector-strong
              # Messages and logs name files as the repository does, wherever it lies.
              -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
              # What users install is the same wherever it was built. Debuggers of the others need their paths.
              $<$<CONFIG:Release>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>
              $<$<CONFIG:Release>:-ffile-prefix-map=${PROJECT_BINARY_DIR}=build>)
target_link_options(millpond_flags INTERFACE -Wl,-z,relro,-z,now -Wl,-z,noexecstack)

if(MILLPOND_SANITIZE)
    target_compile_options(
        millpond_flags INTERFACE -fsanitize=${MILLPOND_SANITIZE} -fno-omit-frame-pointer
                                 -fno-sanitize-recover=all
                                 -O1 -g1) # with -O2 and all of -g it takes twice as long to build
    target_link_options(millpond_flags INTERFACE -fsanitize=${MILLPOND_SANITIZE})
else()
    # clang's sanitizers leave their symbols to the executable, so only plain builds check this.
    target_link_options(millpond_flags INTERFACE -Wl,-z,defs)
    target_compile_options(
        millpond_flags INTERFACE $<$<CONFIG:Release>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
endif()

# Limits what a library exports to what its version script names.
function(millpond_exports target map)
    target_link_options(${target} PRIVATE -Wl,--version-script=${map})
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

# A library's calls of its own functions stay within it, where the linker can promise that (LLVM's of zig refuses the
# option; what the version script keeps private stays within anyway).
include(CheckLinkerFlag)
check_linker_flag(C -Wl,-Bsymbolic-functions MILLPOND_HAS_SYMBOLIC_FUNCTIONS)
function(millpond_bind_own_functions target)
    if(MILLPOND_HAS_SYMBOLIC_FUNCTIONS)
        target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
    endif()
endfunction()
