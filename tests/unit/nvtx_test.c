/* nvtx_test.c - ranges reach a profiler, and cost nothing without one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/nvtx.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Where the profiler of nvtx/nvtx_injection.c was built; empty where it was not. */
#ifndef TEST_NVTX_INJECTION
#define TEST_NVTX_INJECTION ""
#endif

static int counter(void *library, const char *name) {
    const int *value = dlsym(library, name);
    CHECK(value != NULL);
    return *value;
}

TEST(nvtx_ranges_reach_a_profiler) {
    NEEDS_OWN_PROCESS();
    if (!mp_nvtx_available() || TEST_NVTX_INJECTION[0] == 0) {
        SKIP("built without nvtx3/nvToolsExt.h");
    }
    (void)setenv("NVTX_INJECTION64_PATH", TEST_NVTX_INJECTION, 1);
    mp__nvtx_push("outer");
    mp__nvtx_push("inner");
    mp__nvtx_pop();
    void *library = dlopen(TEST_NVTX_INJECTION, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL); /* the first range has loaded it */
    CHECK_EQ_INT(counter(library, "nvtx_injection_domains"), 1);
    CHECK_EQ_INT(counter(library, "nvtx_injection_pushes"), 2);
    CHECK_EQ_INT(counter(library, "nvtx_injection_pops"), 1);
    CHECK_STR_HAS(dlsym(library, "nvtx_injection_last"), "inner");
    mp__nvtx_pop();
    CHECK_EQ_INT(counter(library, "nvtx_injection_pops"), 2);
    (void)dlclose(library);
}

TEST(nvtx_is_off_without_a_profiler) {
    NEEDS_OWN_PROCESS();
    (void)unsetenv("NVTX_INJECTION64_PATH");
    for (int i = 0; i < 3; i++) {
        mp__nvtx_push("nobody listens");
        mp__nvtx_pop();
        CHECK(!atomic_load(&mp__nvtx_on)); /* from the first range on */
    }
}
