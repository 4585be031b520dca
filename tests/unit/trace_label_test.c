/* trace_label_test.c - what memory is for: labels, call stacks, and how a trace shows them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include "pool/pool_handle.h"
#include "pool/trace/trace.h"
#include "pool/trace/trace_intern.h"
#include "pool/trace/trace_label.h"
#include "pool/trace/trace_stack.h"
#include "unit/unpickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- keys by number ---- */

TEST(intern_gives_each_key_one_number) {
    enum { KEYS = 5000, MOST = 4000 };
    static mp_intern set = {.lock = PTHREAD_MUTEX_INITIALIZER};
    size_t size = 0;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < KEYS; i++) {
            const uint64_t key = (uint64_t)i << 33 | i;
            CHECK_EQ_INT(mp__intern(&set, &key, sizeof key, MOST), i < MOST ? i + 1 : 0);
        }
    }
    for (uint32_t i = 0; i < MOST; i++) {
        const uint64_t key = (uint64_t)i << 33 | i;
        const void *kept = mp__intern_key(&set, i + 1, &size);
        CHECK(kept != NULL && size == sizeof key && memcmp(kept, &key, size) == 0);
    }
    CHECK(mp__intern_key(&set, 0, &size) == NULL && size == 0);
    CHECK(mp__intern_key(&set, MOST + 1, &size) == NULL);
    CHECK_EQ_INT(mp__intern(&set, "\0\0", 1, KEYS), MOST + 1); /* a part is another key */
    CHECK_EQ_INT(mp__intern(&set, "\0\0", 2, KEYS), MOST + 2);
}

/* ---- labels ---- */

static void check_label(mp_label label, mp_label_kind kind, const char *node, const char *tensor) {
    const mp_label_info info = mp__label_info((uint16_t)label);
    CHECK_EQ_INT(info.kind, kind);
    CHECK(strcmp(info.node, node) == 0);
    CHECK(strcmp(info.tensor, tensor) == 0);
}

TEST(labels_keep_kind_and_names) {
    const mp_label first = mp_label_make(MP_LABEL_WEIGHTS, "conv1", "w");
    CHECK(first > MP_LABEL_WORKSPACE);
    CHECK_EQ_INT(mp_label_make(MP_LABEL_WEIGHTS, "conv1", "w"), first);
    CHECK(mp_label_make(MP_LABEL_OTHER, "conv1", "w") != first);
    CHECK(mp_label_make(MP_LABEL_WEIGHTS, "conv1w", NULL) != first); /* names do not run together */
    CHECK(mp_label_make(MP_LABEL_WEIGHTS, NULL, "conv1w") !=
          mp_label_make(MP_LABEL_WEIGHTS, "conv1w", NULL));
    check_label(first, MP_LABEL_WEIGHTS, "conv1", "w");
    check_label(mp_label_make(MP_LABEL_WORKSPACE, NULL, NULL), MP_LABEL_WORKSPACE, "", "");
    check_label(mp_label_make(MP_LABEL_ACTIVATIONS, "", "y"), MP_LABEL_ACTIVATIONS, "", "y");
    check_label(mp_label_make((mp_label_kind)77, "n\xff", NULL), MP_LABEL_OTHER, "n?", "");
    check_label(0, MP_LABEL_OTHER, "", "");
    check_label(65535, MP_LABEL_OTHER, "", ""); /* that nobody has made */
}

TEST(labels_of_long_names_keep_the_end) {
    char name[1000];
    memset(name, 'x', sizeof name);
    memcpy(name + sizeof name - 5, "/end", 5);
    const mp_label_info info = mp__label_info((uint16_t)mp_label_make(MP_LABEL_OTHER, name, name));
    CHECK_EQ_INT(strlen(info.node), 240);
    CHECK(strncmp(info.node, "...x", 4) == 0 && strcmp(info.node + 236, "/end") == 0);
    CHECK(strcmp(info.tensor, info.node) == 0);
}

TEST(labels_beyond_the_last_are_their_kind) {
    NEEDS_OWN_PROCESS(); /* fills the table for good */
    char name[32];
    mp_label last = 0;
    for (int i = 0; i < 70000; i++) {
        (void)snprintf(name, sizeof name, "node %d", i);
        last = mp_label_make(MP_LABEL_ACTIVATIONS, name, NULL);
        CHECK(last <= UINT16_MAX);
        CHECK(i > 65000 || last > MP_LABEL_WORKSPACE);
    }
    CHECK_EQ_INT(last, MP_LABEL_ACTIVATIONS);
    check_label(mp_label_make(MP_LABEL_ACTIVATIONS, "node 7", NULL), MP_LABEL_ACTIVATIONS, "node 7",
                "");
}

TEST(labels_are_set_for_a_scope) {
    const mp_label outer = mp_label_make(MP_LABEL_OTHER, "outer", NULL);
    const mp_label before = mp_label_set(outer);
    CHECK_EQ_INT(mp_label_set(MP_LABEL_WEIGHTS), outer);
    CHECK_EQ_INT(mp__label_of_thread(), MP_LABEL_WEIGHTS);
    CHECK_EQ_INT(mp_label_set((mp_label)1 << 20), MP_LABEL_WEIGHTS); /* no label at all */
    CHECK_EQ_INT(mp_label_set(before), 0);
}

/* ---- blocks ---- */

static const mp_layout_block *block_at(const mp_layout *layout, mp_addr addr) {
    for (size_t i = 0; i < layout->block_count; i++) {
        if (layout->blocks[i].addr == addr) {
            return &layout->blocks[i];
        }
    }
    CHECK(false);
    return NULL;
}

static void check_blocks_keep_their_label(mp_device *device, const char *const *options) {
    kit k;
    mp_layout layout;
    mp_addr reserved = 0;
    kit_open(&k, device, options);
    (void)mp_label_set(mp_label_make(MP_LABEL_WEIGHTS, NULL, "kept"));
    CHECK_OK(mp_pool_reserve(k.pool, 5000, &reserved));
    const mp_addr first = kit_alloc(&k, 3000, NULL);
    (void)mp_label_set(mp_label_make(MP_LABEL_WORKSPACE, "node", NULL));
    const mp_addr second = kit_alloc(&k, 3000, NULL);
    kit_free(&k, second);
    const mp_addr third = kit_alloc(&k, 3000, NULL); /* from the shelf, where there is one */
    (void)mp_label_set(0);
    const mp_addr plain = kit_alloc(&k, 3000, NULL);
    CHECK_OK(mp__pool_layout(k.pool, &layout));
    check_label(block_at(&layout, reserved)->label, MP_LABEL_WEIGHTS, "", "kept");
    check_label(block_at(&layout, first)->label, MP_LABEL_WEIGHTS, "", "kept");
    check_label(block_at(&layout, third)->label, MP_LABEL_WORKSPACE, "node", "");
    check_label(block_at(&layout, plain)->label, MP_LABEL_OTHER, "", "");
    CHECK_EQ_INT(block_at(&layout, first)->requested, 3000);
    mp__layout_free(&layout);
    const mp_addr all[] = {reserved, first, third, plain};
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        kit_free(&k, all[i]);
    }
    kit_close(&k);
}

DEVICE_TEST(labels_stay_with_blocks_without_a_trace) {
    check_blocks_keep_their_label(device, KIT_OPTIONS("arena.max_mem=8M"));
}

DEVICE_TEST(labels_stay_with_blocks_of_the_drivers_pool) {
    check_blocks_keep_their_label(device, KIT_OPTIONS("arena.use_cuda_mempool=1"));
}

/* ---- parts of blocks ---- */

DEVICE_TEST(labels_of_parts_show_while_their_block_is_lent) {
    kit k;
    mp_layout layout;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=8M"));
    const mp_label first = mp_label_make(MP_LABEL_WEIGHTS, NULL, "w1");
    const mp_label second = mp_label_make(MP_LABEL_WEIGHTS, NULL, "w2");
    const mp_addr cut = kit_alloc(&k, 5000, NULL), whole = kit_alloc(&k, 700, NULL),
                  gone = kit_alloc(&k, 300, NULL);
    CHECK_OK(mp__pool_part_set(k.pool, cut + 2048, 2000, second));
    CHECK_OK(mp__pool_part_set(k.pool, cut, 1000, first));
    CHECK_OK(mp__pool_part_set(k.pool, cut + 1024, 7, first));
    CHECK_OK(mp__pool_part_set(k.pool, whole, 700, second)); /* all of it */
    CHECK_OK(mp__pool_part_set(k.pool, gone, 100, first));
    CHECK_FAILS(mp__pool_part_set(k.pool, 4096, 100, first), NOT_FOUND, "");
    mp__pool_part_drop(k.pool, cut + 1024);
    mp__pool_part_drop(k.pool, cut + 1025); /* never set */
    kit_free(&k, gone);                     /* against the contract: must not show */
    CHECK_OK(mp__pool_layout(k.pool, &layout));
    CHECK_OK(mp__pool_parts(k.pool, &layout));
    CHECK_EQ_INT(layout.part_count, 2);
    CHECK(layout.parts[0].addr == cut && layout.parts[0].size == 1000);
    CHECK(layout.parts[1].addr == cut + 2048 && layout.parts[1].size == 2000);
    CHECK_EQ_INT(layout.parts[1].label, second);
    CHECK_EQ_INT(block_at(&layout, cut)->label, 0);
    CHECK_EQ_INT(block_at(&layout, whole)->label, second);
    mp__layout_free(&layout);
    kit_free(&k, cut);
    kit_free(&k, whole);
    kit_close(&k);
}

/* ---- stacks ---- */

TEST(stacks_are_kept_once) {
    const mp_frame frames[] = {{"inner.py", "f", 3}, {"outer.py", "<module>", 17}};
    size_t count = 0;
    const uint16_t stack = mp__stack_make(frames, 2);
    CHECK(stack != 0);
    CHECK_EQ_INT(mp__stack_make(frames, 2), stack);
    CHECK(mp__stack_make(frames, 1) != stack);
    CHECK(mp__stack_make(frames + 1, 1) != mp__stack_make(frames, 1));
    CHECK_EQ_INT(mp__stack_make(frames, 0), 0);
    const uint16_t *numbers = mp__stack_frames(stack, &count);
    CHECK_EQ_INT(count, 2);
    const mp_frame outer = mp__stack_frame(numbers[1]);
    CHECK(strcmp(outer.file, "outer.py") == 0 && strcmp(outer.function, "<module>") == 0);
    CHECK_EQ_INT(outer.line, 17);
    CHECK(mp__stack_frames(0, &count) == NULL && count == 0);
    CHECK_EQ_INT(strlen(mp__stack_frame(0).file), 0);
}

static size_t depth_seen;

static uint16_t look(size_t depth) {
    static const mp_frame frames[] = {{"/home/a/program.py", "make", 12}, {"/x.py", "main", 7}};
    depth_seen = depth;
    return mp__stack_make(frames, depth < 2 ? depth : 2);
}

/* The file that a format makes of the pool's trace; to be freed. */
static char *written(const kit *k, mp_trace_format format, size_t *size) {
    char path[] = "/tmp/millpond-label-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0);
    (void)close(file);
    CHECK_OK(mp_pool_trace_write(k->pool, format, path));
    FILE *in = fopen(path, "r");
    char *text = malloc(1 << 20);
    CHECK(in != NULL && text != NULL);
    *size = fread(text, 1, (1 << 20) - 1, in);
    text[*size] = '\0';
    (void)fclose(in);
    CHECK(unlink(path) == 0);
    return text;
}

static void check_files(const kit *k) {
    static const char frames[] =
        "'frames': [{'name': 'make', 'filename': '/home/a/program.py', 'line': 12}, "
        "{'name': 'main', 'filename': '/x.py', 'line': 7}, "
        "{'name': 'Conv_3: y', 'filename': 'activations', 'line': 0}, "
        "{'name': ";
    size_t size = 0;
    char *page = written(k, MP_TRACE_HTML, &size);
    CHECK_STR_HAS(page, "[\"activations\",\"Conv_3\",\"y\"]");
    CHECK_STR_HAS(page, "\"frames\":[[\"/home/a/program.py\",12,\"make\"],[\"/x.py\",7,\"main\"]]");
    CHECK_STR_HAS(page, "\"stacks\":[[],[0,1]]");
    free(page);
    char *pickle = written(k, MP_TRACE_SNAPSHOT, &size);
    char *text = test_unpickle(pickle, size);
    const char *block = strstr(text, frames);
    const char *events = strstr(text, "'device_traces'");
    CHECK(block != NULL && block < events); /* of the block that is allocated now */
    CHECK(strstr(events, frames) != NULL);  /* and of the event that allocated it */
    free(text);
    free(pickle);
}

DEVICE_TEST(stacks_are_looked_at_where_they_are_wanted) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=8M"));
    mp__stack_looker_set(look);
    depth_seen = 0;
    CHECK_OK(mp_pool_trace(k.pool, 64));
    kit_free(&k, kit_alloc(&k, 100, NULL));
    CHECK_EQ_INT(depth_seen, 0); /* nobody has asked for them */
    CHECK_FAILS(mp__pool_trace_stacks(k.pool, 65), INVALID_ARGUMENT, "65");
    CHECK_OK(mp__pool_trace_stacks(k.pool, 5));
    const mp_label before = mp_label_set(mp_label_make(MP_LABEL_ACTIVATIONS, "Conv_3", "y"));
    const mp_addr block = kit_alloc(&k, 100, NULL);
    (void)mp_label_set(before);
    CHECK_EQ_INT(depth_seen, 5);
    depth_seen = 0;
    kit_free(&k, kit_alloc(&k, 1 << 16, NULL));
    CHECK_EQ_INT(depth_seen, 5);
    CHECK_OK(mp_pool_trace(k.pool, 64)); /* anew: without */
    CHECK_OK(mp__pool_trace_stacks(k.pool, 2));
    kit_free(&k, block);
    (void)mp_label_set(mp_label_make(MP_LABEL_ACTIVATIONS, "Conv_3", "y"));
    const mp_addr other = kit_alloc(&k, 100, NULL);
    (void)mp_label_set(before);
    mp__stack_looker_set(NULL);
    check_files(&k);
    kit_free(&k, other);
    kit_close(&k);
}
