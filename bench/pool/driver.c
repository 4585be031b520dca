/* driver.c - loads CUDA's driver.
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include "bench.h"

#include <dlfcn.h>
#include <string.h>

driver cu;

static bool resolve(void *library, const char *symbol, void *entry, size_t size) {
    void *found = dlsym(library, symbol);
    memcpy(entry, &found, size); /* ISO C has no cast from an object to a function */
    return found != NULL;
}

bool driver_open(const char **why) {
    static bool opened;
    if (opened) {
        return true;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        *why = "libcuda.so.1 cannot be loaded";
        return false;
    }
#define DRIVER_RESOLVE(name, symbol, arguments)                         \
    if (!resolve(library, #symbol, (void *)&cu.name, sizeof cu.name)) { \
        *why = "the driver has no " #symbol;                            \
        return false;                                                   \
    }
    DRIVER_LIST(DRIVER_RESOLVE)
#undef DRIVER_RESOLVE
    if (cu.init(0) != 0) {
        *why = "cuInit failed: no GPU is usable";
        return false;
    }
    opened = true;
    return true;
}

void driver_must(int result, const char *what) {
    if (result != 0) {
        const char *name = NULL;
        (void)cu.error_name(result, &name);
        die("%s: %s (%d)", what, name != NULL ? name : "unknown error", result);
    }
}
