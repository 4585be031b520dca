/* backend.c - finds the functions of an allocator: in a library, or built in.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct symbol {
    const char *role;
    size_t offset; /* of the function in a backend */
    bool needed;
} symbol;

static const symbol roles[] = {
    {"alloc", offsetof(backend, alloc), true},        {"free", offsetof(backend, free), true},
    {"init", offsetof(backend, init), false},         {"fini", offsetof(backend, fini), false},
    {"reserved", offsetof(backend, reserved), false}, {"trim", offsetof(backend, trim), false},
};

/* The name that `symbols` gives to `role`, or else bench_<role>. */
static void name_of(const char *role, const char *symbols, char *out, size_t size) {
    const size_t length = strlen(role);
    for (const char *at = symbols; at != NULL && *at != 0;) {
        const char *end = strchrnul(at, ',');
        if (strncmp(at, role, length) == 0 && at[length] == '=') {
            (void)snprintf(out, size, "%.*s", (int)(end - at - (ptrdiff_t)length - 1),
                           at + length + 1);
            return;
        }
        at = *end == ',' ? end + 1 : end;
    }
    (void)snprintf(out, size, "bench_%s", role);
}

void backend_load(const char *path, const char *symbols, backend *out) {
    *out = (backend){.name = path};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        die("%s", dlerror());
    }
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        char name[128];
        name_of(roles[i].role, symbols, name, sizeof name);
        void *found = dlsym(library, name);
        if (found == NULL && roles[i].needed) {
            die("%s has no symbol %s; name another with --symbols %s=NAME", path, name,
                roles[i].role);
        }
        memcpy((char *)out + roles[i].offset, &found, sizeof found);
    }
}

/* ---- floor: ever new addresses that nobody may touch ---- */

enum { FLOOR_ALIGNMENT = 256 };

static void *floor_alloc(ssize_t size, int device, void *stream) {
    static _Thread_local uintptr_t next;
    static _Atomic uintptr_t threads;
    (void)device;
    (void)stream;
    if (next == 0) {
        next = (atomic_fetch_add(&threads, 1) + 1) << 52; /* a range of its own for each thread */
    }
    const uintptr_t addr = next;
    next += ((uintptr_t)size + FLOOR_ALIGNMENT - 1) & ~(uintptr_t)(FLOOR_ALIGNMENT - 1);
    return (void *)addr;
}

static void floor_free(void *memory, ssize_t size, int device, void *stream) {
    (void)memory;
    (void)size;
    (void)device;
    (void)stream;
}

static const backend backend_floor = {.name = "floor", .alloc = floor_alloc, .free = floor_free};

void backend_builtin(const char *name, backend *out) {
    const backend *const known[] = {&backend_floor, &backend_driver, &backend_driver_async};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i]->name, name) == 0) {
            *out = *known[i];
            return;
        }
    }
    die("no backend '%s' is built in; there are floor, cuda and cuda-async", name);
}
