/* profile_test.c - what a device did reaches who listens: the right work, the right marks, the
 * right times; on the emulated device in all modes, and on a GPU through CUPTI.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "test.h"
#include "test_kernels.h"

#include "device/host/host_device.h"
#include "device/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 3000, BYTES = COUNT * 8, SEEN_MAX = 256, THREADS = 4, ROUNDS = 20 };

/* ---- work to listen to ---- */

typedef struct rig {
    mp_device *device;
    mp_stream *stream;
    mp_kernel *affine;
    mp_addr x, y;
} rig;

static rig open_rig(mp_device *device) {
    rig r = {.device = device};
    CHECK_OK(device->ops->stream_create(device, &r.stream));
    CHECK_OK(device->ops->kernel_load(device, &test_affine_image, &r.affine));
    CHECK_OK(device->ops->alloc(device, BYTES, &r.x));
    CHECK_OK(device->ops->alloc(device, BYTES, &r.y));
    CHECK_OK(device->ops->fill(device, NULL, r.x, 0, 4, BYTES / 4));
    return r;
}

static void close_rig(const rig *r) {
    r->device->ops->stream_destroy(r->device, r->stream);
    r->device->ops->kernel_unload(r->device, r->affine);
    r->device->ops->free(r->device, r->x, BYTES);
    r->device->ops->free(r->device, r->y, BYTES);
}

static void queue_kernel(const rig *r) {
    const affine_args args = {
        .y = (int64_t *)r->y, .x = (const int64_t *)r->x, .count = COUNT, .scale = 2, .shift = 1};
    const mp_grid grid = {.blocks = 5, .blocks_y = 2, .lanes = 64};
    CHECK_OK(r->device->ops->launch(r->device, r->stream, r->affine, grid, &args, sizeof args));
}

static void wait_for(const rig *r) {
    CHECK_OK(r->device->ops->stream_synchronize(r->device, r->stream));
}

/* ---- listening ---- */

typedef struct seen {
    mp_profile_record records[SEEN_MAX];
    char names[SEEN_MAX][64], parts[SEEN_MAX][64];
    int count;
} seen;

static mp_profile *listen(mp_device *device) {
    mp_profile *profile = NULL;
    const mp_status status = mp_profile_open(device, &profile);
    if (status != MP_OK && device->info.kind == MP_DEVICE_CUDA) {
        SKIP("no profile of this GPU: %s", mp_error_message());
    }
    CHECK_OK(status);
    return profile;
}

static void note(void *context, const mp_profile_record *record) {
    seen *s = context;
    CHECK(s->count < SEEN_MAX);
    (void)snprintf(s->names[s->count], sizeof s->names[0], "%s", record->name);
    (void)snprintf(s->parts[s->count], sizeof s->parts[0], "%s",
                   record->part != NULL ? record->part : "");
    s->records[s->count++] = *record;
}

static seen *stop(mp_profile *profile) {
    seen *s = calloc(1, sizeof *s);
    CHECK(s != NULL);
    CHECK_EQ_INT(mp_profile_close(profile, note, s), 0);
    for (int i = 1; i < s->count; i++) {
        CHECK(s->records[i - 1].begin_ns <= s->records[i].begin_ns);
    }
    return s;
}

static int count_tag(const seen *s, uint64_t tag, mp_profile_kind kind) {
    int count = 0;
    for (int i = 0; i < s->count; i++) {
        count += s->records[i].tag == tag && s->records[i].kind == kind;
    }
    return count;
}

/* ---- tests ---- */

DEVICE_TEST(a_profile_has_kernels_copies_and_fills) {
    const rig r = open_rig(device);
    mp_addr pinned = 0;
    CHECK_OK(device->ops->alloc_pinned(device, BYTES, &pinned));
    memset((void *)pinned, 0, BYTES);
    mp_profile *profile = listen(device);
    const int64_t begin = mp_clock_ns();
    mp_profile_push(profile, 7);
    CHECK_OK(device->ops->copy(device, r.stream, r.x, pinned, BYTES));
    queue_kernel(&r);
    CHECK_OK(device->ops->fill(device, r.stream, r.x, 3, 4, 100));
    CHECK_OK(device->ops->copy(device, r.stream, r.x, r.y, BYTES / 2));
    CHECK_OK(device->ops->copy(device, r.stream, pinned, r.x, BYTES));
    const uint64_t tag = mp_profile_pop(profile, 7);
    wait_for(&r);
    const int64_t end = mp_clock_ns();
    seen *s = stop(profile);
    static const struct {
        mp_profile_kind kind;
        const char *name;
        uint64_t bytes;
    } expected[] = {{MP_PROFILE_COPY, "MemcpyHostToDevice", BYTES},
                    {MP_PROFILE_KERNEL, "affine", 0},
                    {MP_PROFILE_FILL, "Memset", 400},
                    {MP_PROFILE_COPY, "MemcpyDeviceToDevice", BYTES / 2},
                    {MP_PROFILE_COPY, "MemcpyDeviceToHost", BYTES}};
    CHECK_EQ_INT(s->count, 5);
    /* A GPU's clock is converted to ours, which leaves an error. */
    const bool gpu = device->info.kind == MP_DEVICE_CUDA;
    const int64_t slack = gpu ? 2000000 : 0;
    const int64_t overlap = gpu ? 5000 : 0;
    for (int i = 0; i < 5; i++) {
        const mp_profile_record *record = &s->records[i];
        CHECK_EQ_INT(record->kind, expected[i].kind);
        CHECK_STR_HAS(s->names[i], expected[i].name);
        CHECK_EQ_INT(record->bytes, expected[i].bytes);
        CHECK_EQ_INT(record->tag, tag);
        CHECK_EQ_INT(record->node_tag, tag);
        CHECK_EQ_INT(record->device, device->ordinal);
        CHECK_EQ_INT(record->stream, s->records[0].stream);
        CHECK(!record->in_graph);
        CHECK(record->end_ns >= record->begin_ns);
        CHECK(i == 0 || record->begin_ns >= s->records[i - 1].end_ns - overlap);
        CHECK(i == 0 || record->correlation != s->records[i - 1].correlation);
        CHECK(record->begin_ns >= begin - slack && record->end_ns <= end + slack);
    }
    CHECK_EQ_INT(s->records[1].grid[0], 5);
    CHECK_EQ_INT(s->records[1].grid[1], 2);
    CHECK_EQ_INT(s->records[1].grid[2], 1);
    CHECK_EQ_INT(s->records[1].block[0], 64);
    free(s);
    device->ops->free_pinned(device, pinned, BYTES);
    close_rig(&r);
}

DEVICE_TEST(marks_nest_and_unmarked_work_is_nobodys) {
    const rig r = open_rig(device);
    mp_profile *profile = listen(device);
    queue_kernel(&r); /* nobody's */
    mp_profile_push(profile, 1);
    queue_kernel(&r);
    mp_profile_push(profile, 2);
    queue_kernel(&r);
    queue_kernel(&r);
    const uint64_t inner = mp_profile_pop(profile, 2);
    mp_profile_push(profile, 3);
    CHECK_EQ_INT(mp_profile_pop(profile, 3), 0); /* nothing was queued */
    queue_kernel(&r);
    mp_profile_push(profile, 4); /* left behind, as by a run that failed */
    const uint64_t outer = mp_profile_pop(profile, 1);
    CHECK_EQ_INT(mp_profile_pop(profile, 1), 0);
    queue_kernel(&r); /* nobody's */
    wait_for(&r);
    seen *s = stop(profile);
    CHECK(inner != 0 && outer != 0 && inner != outer);
    CHECK_EQ_INT(s->count, 4);
    CHECK_EQ_INT(count_tag(s, outer, MP_PROFILE_KERNEL), 2);
    CHECK_EQ_INT(count_tag(s, inner, MP_PROFILE_KERNEL), 2);
    free(s);
    close_rig(&r);
}

DEVICE_TEST(a_replay_names_the_marks_of_the_capture) {
    const rig r = open_rig(device);
    mp_profile *profile = listen(device);
    mp_graph_exec *graph = NULL;
    uint64_t node[2];
    uint64_t run[2];
    CHECK_OK(device->ops->capture_begin(device, r.stream));
    for (uint64_t i = 0; i < 2; i++) {
        mp_profile_push(profile, i);
        queue_kernel(&r);
        node[i] = mp_profile_pop(profile, i);
    }
    CHECK_OK(device->ops->capture_end(device, r.stream, &graph));
    for (uint64_t i = 0; i < 2; i++) {
        mp_profile_push(profile, 10 + i);
        CHECK_OK(device->ops->graph_launch(device, graph, r.stream));
        run[i] = mp_profile_pop(profile, 10 + i);
    }
    wait_for(&r);
    seen *s = stop(profile);
    CHECK_EQ_INT(s->count, 4); /* the capture itself did nothing */
    for (int i = 0; i < 4; i++) {
        CHECK(s->records[i].in_graph);
        CHECK_EQ_INT(s->records[i].tag, run[i / 2]);
        CHECK_EQ_INT(s->records[i].node_tag, node[i % 2]);
        CHECK_EQ_INT(s->records[i].correlation, s->records[i / 2 * 2].correlation);
    }
    CHECK(s->records[0].correlation != s->records[2].correlation);
    free(s);
    device->ops->graph_destroy(device, graph);
    close_rig(&r);
}

/* Parts have the tag of their mark; a replay names those of the capture. */
DEVICE_TEST(parts_of_a_mark_are_named) {
    NEEDS_OWN_PROCESS(); /* a mark that a test before left behind would still listen */
    const rig r = open_rig(device);
    static const char *const texts[] = {"first", "second"};
    mp_graph_exec *graph = NULL;
    CHECK(!mp_profile_part_begin("nobody listens"));
    CHECK_EQ_INT(mp_profile_listener(), 0);
    mp_profile *profile = listen(device);
    CHECK(!mp_profile_part_begin("no mark"));
    mp_profile_push(profile, 1);
    CHECK(mp_profile_listener() != 0);
    CHECK_OK(device->ops->capture_begin(device, r.stream));
    for (int i = 0; i < 2; i++) {
        char text[16]; /* it is copied */
        (void)snprintf(text, sizeof text, "%s", texts[i]);
        CHECK(mp_profile_part_begin(text));
        memset(text, 0, sizeof text);
        queue_kernel(&r);
        mp_profile_part_end();
    }
    CHECK_OK(device->ops->capture_end(device, r.stream, &graph));
    const uint64_t captured = mp_profile_pop(profile, 1);
    mp_profile_push(profile, 2);
    CHECK_OK(device->ops->graph_launch(device, graph, r.stream));
    CHECK(mp_profile_part_begin("walked"));
    queue_kernel(&r);
    mp_profile_part_end();
    mp_profile_part_end(); /* there is none */
    queue_kernel(&r);
    CHECK(mp_profile_part_begin("left behind"));
    const uint64_t run = mp_profile_pop(profile, 2);
    CHECK_EQ_INT(mp_profile_listener(), 0);
    wait_for(&r);
    seen *s = stop(profile);
    CHECK_EQ_INT(s->count, 5 - 1);
    CHECK(captured != 0 && run != 0);
    for (int i = 0; i < 2; i++) {
        CHECK(s->records[i].in_graph);
        CHECK_EQ_INT(s->records[i].tag, run);
        CHECK_EQ_INT(s->records[i].node_tag, captured);
        CHECK_STR_HAS(s->parts[i], texts[i]);
    }
    CHECK_EQ_INT(s->records[2].tag, run);
    CHECK_EQ_INT(s->records[2].node_tag, run);
    CHECK_STR_HAS(s->parts[2], "walked");
    CHECK_EQ_INT(s->parts[3][0], 0);
    free(s);
    device->ops->graph_destroy(device, graph);
    close_rig(&r);
}

/* A run that fails may leave its mark on the thread, and its listener go. */
DEVICE_TEST(parts_of_a_listener_that_went_do_not_begin) {
    const rig r = open_rig(device);
    mp_profile *profile = listen(device);
    mp_profile_push(profile, 1);
    queue_kernel(&r);
    wait_for(&r);
    free(stop(profile));
    CHECK(!mp_profile_part_begin("nobody"));
    close_rig(&r);
}

typedef struct worker {
    pthread_t thread;
    const rig *rig;
    mp_profile *profile;
    uint64_t tags[ROUNDS];
} worker;

static void *work(void *context) {
    worker *w = context;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        mp_profile_push(w->profile, i); /* the same numbers on every thread */
        queue_kernel(w->rig);
        w->tags[i] = mp_profile_pop(w->profile, i);
        if (i % 8 == 7) {
            wait_for(w->rig);
        }
    }
    wait_for(w->rig);
    return NULL;
}

/* Two listeners of two threads each: every kernel reaches the one it is for, once. */
DEVICE_TEST(listeners_and_threads_are_told_apart) {
    rig rigs[THREADS];
    worker workers[THREADS];
    mp_profile *profiles[2];
    for (int i = 0; i < THREADS; i++) {
        rigs[i] = open_rig(device);
    }
    profiles[0] = listen(device);
    profiles[1] = listen(device);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.rig = &rigs[i], .profile = profiles[i % 2]};
        CHECK_EQ_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(workers[i].thread, NULL), 0);
    }
    for (int p = 0; p < 2; p++) {
        seen *s = stop(profiles[p]);
        CHECK_EQ_INT(s->count, THREADS / 2 * ROUNDS);
        for (int i = p; i < THREADS; i += 2) {
            for (int k = 0; k < ROUNDS; k++) {
                CHECK_EQ_INT(count_tag(s, workers[i].tags[k], MP_PROFILE_KERNEL), 1);
            }
        }
        free(s);
    }
    for (int i = 0; i < THREADS; i++) {
        close_rig(&rigs[i]);
    }
}

/* A listener may go while work under its marks is still queued: nothing of it stays. */
DEVICE_TEST(work_that_ends_after_its_listener_is_dropped) {
    const rig r = open_rig(device);
    for (int round = 0; round < 3; round++) {
        mp_profile *profile = listen(device);
        mp_profile_push(profile, 1);
        for (int i = 0; i < 20; i++) {
            queue_kernel(&r);
        }
        (void)mp_profile_pop(profile, 1);
        seen *s = stop(profile);
        CHECK(s->count <= 20);
        free(s);
    }
    wait_for(&r);
    close_rig(&r);
}

TEST(a_profile_that_cannot_begin_leaves_nothing) {
    const mp_host_config config = {.memory_bytes = (size_t)16 << 20};
    mp_device *device = NULL;
    mp_profile *profile = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    (void)mp__host_device_fail(device, 1, MP_UNSUPPORTED);
    CHECK_FAILS(mp_profile_open(device, &profile), UNSUPPORTED, "profile_begin");
    CHECK(profile == NULL);
    CHECK_OK(mp_profile_open(device, &profile));
    seen *s = stop(profile);
    CHECK_EQ_INT(s->count, 0);
    free(s);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
