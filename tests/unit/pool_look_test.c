/* pool_look_test.c - what a pool tells of itself: its device, statistics, the dump, the trace; and
 * its memory to other processes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/pool_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- statistics ---- */

DEVICE_TEST(pool_look_fills_the_statistics_that_a_caller_knows) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    const mp_addr block = kit_alloc(&k, 1000, NULL);
    struct {
        mp_pool_stats stats;
        unsigned char behind[32];
    } area;
    memset(&area, 0xee, sizeof area);
    /* An older program knows only the first of them. */
    CHECK_OK(mp_pool_get_stats(k.pool, &area.stats, offsetof(mp_pool_stats, requested)));
    CHECK_EQ_INT(area.stats.limit, KIT_MIB(1));
    CHECK_EQ_INT(area.stats.in_use, 1024);
    CHECK_EQ_INT(area.stats.requested, 0xeeeeeeeeeeeeeeee);
    CHECK_OK(mp_pool_get_stats(k.pool, &area.stats, sizeof area.stats));
    CHECK_EQ_INT(area.stats.requested, 1000);
    CHECK_EQ_INT(area.behind[0], 0xee);
    /* A newer one knows more than we do: that much is 0. */
    CHECK_OK(mp_pool_get_stats(k.pool, &area.stats, sizeof area));
    CHECK_EQ_INT(area.behind[0] + area.behind[31], 0);
    kit_free(&k, block);
    kit_close(&k);
}

/* ---- the device ---- */

DEVICE_TEST(pool_look_names_its_device) {
    kit k;
    mp_pool_device about = {.ordinal = -1};
    size_t left = 0, all = 0;
    char wanted[16];
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    const mp_addr block = kit_alloc(&k, 1000, NULL);
    CHECK_OK(device->ops->memory_info(device, &left, &all));
    CHECK_OK(mp_pool_get_device(k.pool, &about, sizeof about));
    const bool emulated = device->info.kind == MP_DEVICE_HOST;
    (void)snprintf(wanted, sizeof wanted, "%s:%d", emulated ? "host" : "cuda", device->ordinal);
    CHECK(strcmp(about.device, wanted) == 0);
    CHECK(strcmp(about.name, device->info.name) == 0);
    CHECK_EQ_INT(about.ordinal, device->ordinal);
    CHECK_EQ_INT(about.is_emulated, emulated);
    CHECK_EQ_INT(about.memory, MP_MEMORY_DEVICE);
    CHECK_EQ_INT(about.memory_total, all);
    if (emulated) { /* of a GPU, others may have taken some since */
        CHECK_EQ_INT(about.memory_free, left);
    }
    CHECK(about.memory_free > 0 && about.memory_free <= all - KIT_MIB(1)); /* a region is had */
    kit_free(&k, block);
    kit_close(&k);
}

DEVICE_TEST(pool_look_cannot_tell_the_room_for_pinned_memory) {
    mp_pool *pool = NULL;
    mp_pool_device about = {.memory_free = 7, .memory_total = 7};
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_PINNED, "kit", NULL, &pool));
    CHECK_OK(mp_pool_get_device(pool, &about, sizeof about));
    CHECK_EQ_INT(about.memory, MP_MEMORY_PINNED);
    CHECK_EQ_INT(about.ordinal, device->ordinal);
    CHECK(strcmp(about.name, device->info.name) == 0);
    CHECK_EQ_INT(about.memory_free, 0);
    CHECK_EQ_INT(about.memory_total, 0);
    mp_pool_close(pool);
}

DEVICE_TEST(pool_look_fills_what_a_caller_knows_of_the_device) {
    kit k;
    struct {
        mp_pool_device about;
        unsigned char behind[32];
    } area;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    memset(&area, 0xee, sizeof area);
    /* An older program knows only the first of it. */
    CHECK_OK(mp_pool_get_device(k.pool, &area.about, offsetof(mp_pool_device, ordinal)));
    CHECK(strcmp(area.about.name, device->info.name) == 0);
    CHECK_EQ_INT(area.about.ordinal, (int32_t)0xeeeeeeee);
    CHECK_OK(mp_pool_get_device(k.pool, &area.about, sizeof area.about));
    CHECK_EQ_INT(area.about.ordinal, device->ordinal);
    CHECK_EQ_INT(area.behind[0], 0xee);
    /* A newer one knows more than we do: that much is 0. */
    CHECK_OK(mp_pool_get_device(k.pool, &area.about, sizeof area));
    CHECK_EQ_INT(area.behind[0] + area.behind[31], 0);
    kit_close(&k);
}

/* ---- the dump ---- */

typedef struct page {
    char text[1 << 16];
    size_t size;
} page;

static void write_page(void *context, const char *text, size_t size) {
    page *p = context;
    CHECK(size < sizeof p->text - p->size);
    memcpy(p->text + p->size, text, size);
    p->size += size;
    p->text[p->size] = 0;
}

DEVICE_TEST(pool_look_dumps_a_page) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    kit_stream stream = kit_stream_open(&k);
    const mp_addr a = kit_alloc(&k, 123456, &stream), b = kit_alloc(&k, 1000, NULL);
    mp_addr weights = 0;
    CHECK_OK(mp_pool_reserve(k.pool, 70000, &weights));
    page *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    CHECK_OK(mp_pool_dump(k.pool, write_page, p));
    CHECK(p->size > 0 && p->text[p->size - 1] == '\n');
    CHECK_STR_HAS(p->text, "kit");
    CHECK_STR_HAS(p->text, "123648"); /* rounding included */
    CHECK_STR_HAS(p->text, "2 allocated (193792 bytes, 193456 requested, 336 wasted)");
    CHECK_STR_HAS(p->text, "blocks of 123648 bytes: 1, 123648 bytes in all");
    CHECK_STR_HAS(p->text, "70144 bytes allocated by kit, which requested 70000");
    CHECK_STR_HAS(p->text, "1024 bytes allocated by kit, which requested 1000");
    CHECK_STR_HAS(p->text, "bytes free\n");
    CHECK(memchr(p->text, 0, p->size) == NULL);
    free(p);
    kit_free(&k, a);
    kit_free(&k, b);
    kit_free(&k, weights);
    kit_stream_close(&k, &stream);
    kit_close(&k);
}

/* As many chunks and sizes as there are; the page stays one. */
DEVICE_TEST(pool_look_dumps_a_page_of_many_chunks) {
    enum { COUNT = 200 };
    kit k;
    mp_addr blocks[COUNT];
    kit_open(&k, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = kit_alloc(&k, 256 * (COUNT - i), NULL);
    }
    page *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    CHECK_OK(mp_pool_dump(k.pool, write_page, p));
    CHECK_STR_HAS(p->text, "blocks of 51200 bytes: 1, 51200 bytes in all\n"); /* the largest stay */
    CHECK_STR_HAS(p->text, "and 152 smaller blocks\n");
    CHECK_STR_HAS(p->text, " more chunks\n");
    free(p);
    for (size_t i = 0; i < COUNT; i++) {
        kit_free(&k, blocks[i]);
    }
    kit_close(&k);
}

DEVICE_TEST(pool_look_dumps_the_drivers_pool) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.use_cuda_mempool=1"));
    const mp_addr block = kit_alloc(&k, 1000, NULL);
    page *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    CHECK_OK(mp_pool_dump(k.pool, write_page, p));
    CHECK_STR_HAS(p->text, "requested 1000");
    CHECK_STR_HAS(p->text, "1 requests, 0 frees");
    CHECK_STR_HAS(p->text, "bytes allocated by kit, which requested 1000\n");
    free(p);
    kit_free(&k, block);
    kit_close(&k);
}

/* ---- the log ---- */

DEVICE_TEST(pool_look_logs_options_growth_and_shrinking) {
    kit k;
    const mp_log_level before = mp_log_get_threshold();
    mp_log_set_threshold(MP_LOG_INFO);
    kit_log_keep();
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=8M", "arena.extend_strategy=1"));
    CHECK(kit_log_has("extend_strategy kSameAsRequested, initial_chunk_size_bytes 1048576"));
    kit_free(&k, kit_alloc(&k, 1000, NULL));
    CHECK(kit_log_has("grew by 1024 bytes"));
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK(kit_log_has("gave back 1024 bytes"));
    mp_addr none = 0;
    CHECK_FAILS(mp_pool_reserve(k.pool, KIT_MIB(9), &none), OUT_OF_MEMORY, "max_mem");
    CHECK(kit_log_has("nothing could be reserved"));
    kit_log_end();
    mp_log_set_threshold(before);
    kit_close(&k);
}

DEVICE_TEST(pool_look_logs_the_drivers_pool_and_its_trimming) {
    kit k;
    const mp_log_level before = mp_log_get_threshold();
    mp_log_set_threshold(MP_LOG_INFO);
    kit_log_keep();
    kit_open(
        &k, device,
        KIT_OPTIONS("arena.use_cuda_mempool=1", "arena.cuda_mempool_bytes_to_keep_on_shrink=4096"));
    CHECK(kit_log_has("cuda_mempool_bytes_to_keep_on_shrink 4096, max_mem none"));
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK(kit_log_has("was trimmed by"));
    kit_log_end();
    mp_log_set_threshold(before);
    kit_close(&k);
}

/* ---- the trace ---- */

/* Reads a file, of at most 4 MiB. */
static char *read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, KIT_MIB(4));
    CHECK(file != NULL && text != NULL);
    const size_t got = fread(text, 1, KIT_MIB(4) - 1, file);
    (void)fclose(file);
    CHECK(got > 0);
    return text;
}

static size_t count_of(const char *text, const char *word) {
    size_t count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        count++;
    }
    return count;
}

DEVICE_TEST(pool_look_traces_what_happens) {
    kit k;
    char folder[] = "/tmp/millpond-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/log.csv", folder);
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    kit_free(&k, kit_alloc(&k, 111, NULL)); /* not traced yet */
    CHECK_OK(mp_pool_trace(k.pool, 64));
    const mp_addr kept = kit_alloc(&k, 2222, NULL);
    kit_free(&k, kit_alloc(&k, 3333, NULL));
    CHECK_OK(mp_pool_trace_write(k.pool, MP_TRACE_RMM_CSV, path));
    char *text = read_all(path);
    CHECK_EQ_INT(count_of(text, ",allocate,"), 2);
    CHECK_EQ_INT(count_of(text, ",free,"), 1);
    CHECK_EQ_INT(count_of(text, ",2222,"), 1);
    CHECK_EQ_INT(count_of(text, ",3333,"), 2);
    CHECK_EQ_INT(count_of(text, ",111,"), 0);
    free(text);
    CHECK_OK(mp_pool_trace_write(k.pool, MP_TRACE_SNAPSHOT, path)); /* replaces it */
    text = read_all(path);
    CHECK((unsigned char)text[0] == 0x80); /* the first byte of a pickle */
    free(text);
    CHECK_OK(mp_pool_trace_write(k.pool, MP_TRACE_HTML, path));
    text = read_all(path);
    CHECK_STR_HAS(text, "<html");
    free(text);
    CHECK(unlink(path) == 0);
    CHECK(rmdir(folder) == 0); /* nothing else was left in it */
    kit_free(&k, kept);
    kit_close(&k);
}

DEVICE_TEST(pool_look_refuses_traces_that_cannot_be) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    CHECK_FAILS(mp_pool_trace(k.pool, ((size_t)1 << 30) + 1), INVALID_ARGUMENT, "1073741825");
    CHECK_FAILS(mp_pool_trace(k.pool, SIZE_MAX), INVALID_ARGUMENT, "");
    CHECK_FAILS(mp_pool_trace_write(k.pool, MP_TRACE_HTML, "/nowhere/at/all.html"), NOT_FOUND,
                "/nowhere/at/all.html");
    CHECK_FAILS(mp_pool_trace_write(k.pool, (mp_trace_format)9, "/tmp/x"), INVALID_ARGUMENT, "9");
    CHECK_OK(mp_pool_trace(k.pool, 1));
    CHECK_OK(mp_pool_trace(k.pool, 0));
    CHECK_OK(mp_pool_trace(k.pool, 0));
    kit_close(&k);
}

/* ---- other processes ---- */

DEVICE_TEST(pool_look_exports_only_what_another_process_can_open) {
    static const char *const options[] = {"arena.expandable=1", "arena.use_cuda_mempool=1"};
    for (size_t i = 0; i < MP_COUNT_OF(options); i++) {
        kit k;
        mp_ipc_handle handle;
        size_t offset = 77;
        kit_open(&k, device, KIT_OPTIONS(options[i]));
        const mp_addr block = kit_alloc(&k, 1000, NULL);
        CHECK_FAILS(mp_pool_ipc_export(k.pool, block, &handle, &offset), UNSUPPORTED, "arena.ipc");
        CHECK_EQ_INT(offset, 77);
        kit_free(&k, block);
        mp_pool_close(k.pool); /* what the driver keeps is in no region of ours to check */
        k.pool = NULL;
        kit_close(&k);
    }
}

typedef struct parcel { /* from one process to another */
    mp_ipc_handle handle;
    size_t offset;
} parcel;

/* The other process: finds what the first one has written. Returns an exit status. */
static int open_parcel(int from) {
    const mp_host_config config = {.memory_bytes = KIT_MIB(16), .ipc = true};
    mp_device *device = NULL;
    mp_addr region = 0;
    size_t size = 0;
    parcel got;
    if (read(from, &got, sizeof got) != (ssize_t)sizeof got ||
        mp__host_device_create(&config, &device) != MP_OK ||
        device->ops->ipc_open(device, got.handle.bytes, &region, &size) != MP_OK) {
        return 1;
    }
    const unsigned char *bytes = (const unsigned char *)region + got.offset;
    const bool same = size >= got.offset + 5000 && bytes[0] == 0x21 && bytes[4999] == 0x21;
    return device->ops->ipc_close(device, region) == MP_OK && same ? 0 : 2;
}

TEST(pool_look_exports_blocks_to_another_process) {
    NEEDS_OWN_PROCESS();
    int ends[2], state = 1;
    CHECK(pipe(ends) == 0);
    const pid_t child = fork(); /* first, since a child of a process with a pool may not use it */
    if (child == 0) {
        _exit(open_parcel(ends[0]));
    }
    const mp_host_config config = {.memory_bytes = KIT_MIB(16), .ipc = true};
    mp_device *device = NULL;
    kit k;
    CHECK_OK(mp__host_device_create(&config, &device));
    kit_open(&k, device, KIT_OPTIONS("arena.ipc=1"));
    const mp_addr first = kit_alloc(&k, 3000, NULL), block = kit_alloc(&k, 5000, NULL);
    memset((void *)block, 0x21, 5000);
    parcel sent = {.offset = 0}, other = {.offset = 1};
    CHECK_OK(mp_pool_ipc_export(k.pool, block, &sent.handle, &sent.offset));
    CHECK_OK(mp_pool_ipc_export(k.pool, first, &other.handle, &other.offset));
    CHECK_EQ_INT(sent.offset - other.offset, block - first); /* of one region */
    CHECK(write(ends[1], &sent, sizeof sent) == (ssize_t)sizeof sent);
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state));
    CHECK_EQ_INT(WEXITSTATUS(state), 0);
    kit_free(&k, first);
    kit_free(&k, block);
    kit_close(&k);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

DEVICE_TEST(pool_look_warns_of_a_check_that_the_drivers_pool_has_no_use_for) {
    kit k;
    kit_log_keep();
    kit_open(&k, device, KIT_OPTIONS("arena.use_cuda_mempool=1", "arena.check=1"));
    CHECK(kit_log_has("arena.check=1 does nothing with arena.use_cuda_mempool=1"));
    kit_log_end();
    kit_close(&k);
}
