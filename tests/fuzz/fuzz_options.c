/* fuzz_options.c - any text as the options of a pool, or as the name of its device.
 *
 * The first byte says where the rest goes: the environment, the list of options (one a line), both,
 * or the name of the device. Whatever is taken must give a pool that works, and that a second
 * opener with the same options shares without a warning.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "base/log.h"
#include "millpond/millpond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4096, OPTIONS_MAX = 32 };

const char *const fuzz_words[] = {
    "arena.extend_strategy=",
    "arena.initial_chunk_size_bytes=",
    "arena.max_dead_bytes_per_chunk=",
    "arena.initial_growth_chunk_size_bytes=",
    "arena.max_power_of_two_extend_bytes=",
    "arena.max_mem=",
    "arena.use_cuda_mempool=",
    "arena.cuda_mempool_release_threshold=",
    "arena.cuda_mempool_bytes_to_keep_on_shrink=",
    "arena.expandable=",
    "arena.ipc=",
    "arena.guard=",
    "arena.check=",
    "arena.external=",
    "direct",
    "host:0",
    "auto",
    "cuda",
    "true",
    "18446744073709551615",
    "0x",
    "1",
    "0",
    "64K",
    "1M",
    "1G",
    "=",
    ",",
    "\n",
    NULL,
};

static int warnings;

static void count_warning(void *context, mp_log_level level, const char *file, int line,
                          const char *text) {
    (void)context, (void)file, (void)line, (void)text;
    warnings += level == MP_LOG_WARNING;
}

static void must(bool well, const char *what) {
    if (!well) {
        (void)fprintf(stderr, "fuzz_options: %s: %s\n", what, mp_error_message());
        abort();
    }
}

static void set_up(void) {
    static bool done;
    if (!done) { /* what the machine has is not to be had */
        done = true;
        must(setenv("MILLPOND_HOST_MEMORY", "16M", 1) == 0, "setenv");
        mp_log_set_sink(count_warning, NULL);
    }
}

static void use(mp_pool *pool) {
    mp_addr small = 0, large = 0;
    mp_pool_stats stats = {0};
    const mp_status first = mp_pool_alloc(pool, 1000, MP_NO_STREAM, &small);
    const mp_status second = mp_pool_alloc(pool, 3 << 20, MP_NO_STREAM, &large);
    must(first == MP_OK || first == MP_OUT_OF_MEMORY, "a small block");
    must(second == MP_OK || second == MP_OUT_OF_MEMORY, "a large block");
    must(mp_pool_free(pool, small) == MP_OK && mp_pool_free(pool, large) == MP_OK, "free");
    must(mp_pool_shrink(pool, NULL) == MP_OK, "shrink");
    must(mp_pool_get_stats(pool, &stats, sizeof stats) == MP_OK, "get_stats");
    must(stats.in_use == 0 && stats.allocs == stats.frees, "nothing is left in use");
}

static void try_text(const char *device, const char *environment, const char *const *options) {
    mp_pool *pool = NULL, *again = NULL;
    must(setenv("MILLPOND_POOL", environment, 1) == 0, "setenv");
    const mp_status status = mp_pool_open(device, MP_MEMORY_DEVICE, "fuzz", options, &pool);
    must((status == MP_OK) == (pool != NULL), "a pool or a failure");
    if (status != MP_OK) {
        must(mp_error_message()[0] != '\0', "a failure without a sentence");
        return;
    }
    use(pool);
    warnings = 0;
    must(mp_pool_open(device, MP_MEMORY_DEVICE, "fuzz", options, &again) == MP_OK, "open again");
    must(warnings == 0, "a warning of options that are the same");
    mp_pool_close(again);
    mp_pool_close(pool);
}

/* Cuts `text` into lines. */
static void cut(char *text, const char *lines[OPTIONS_MAX + 1]) {
    size_t count = 0;
    char *rest = text;
    do {
        lines[count++] = strsep(&rest, "\n");
    } while (rest != NULL && count < OPTIONS_MAX);
    lines[count] = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { // NOLINT
    char text[TEXT_MAX] = "", copy[TEXT_MAX];
    const char *lines[OPTIONS_MAX + 1];
    set_up();
    if (size == 0 || size > sizeof text) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    memcpy(copy, text, sizeof copy);
    cut(copy, lines);
    switch (data[0] % 4) {
    case 0:
        try_text("host:0", text, NULL);
        break;
    case 1:
        try_text("host:0", "", lines);
        break;
    case 2:
        try_text("host:0", lines[0], lines + 1);
        break;
    default:
        try_text(lines[0], "", lines + 1);
    }
    return 0;
}
