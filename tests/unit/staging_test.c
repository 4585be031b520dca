/* staging_test.c - large copies from and to memory that is not pinned: whole, in the stream's
 * order, by several threads at once, and where a call fails or there is no pinned memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_log.h"

#include "base/helper.h"
#include "device/host/host_device.h"
#include "device/staging.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MIB = 1 << 20, LARGE = 11 * MIB + 77 /* more than a ring */ };

/* ---- helpers ---- */

typedef struct pile {
    atomic_int left, taken;
} pile;

static void take_all(void *context) {
    pile *p = context;
    while (atomic_fetch_sub(&p->left, 1) > 0) {
        (void)atomic_fetch_add(&p->taken, 1);
    }
}

static void *take_piles(void *unused) {
    for (int i = 0; i < 200; i++) {
        pile p;
        mp_helped helped = {.join = take_all, .context = &p};
        atomic_init(&p.left, 50 * (i % 7));
        atomic_init(&p.taken, 0);
        mp_helper_ask(&helped, (size_t)(i % 5));
        take_all(&p);
        mp_helper_end(&helped);
        CHECK_EQ_INT(atomic_load(&p.taken), 50 * (i % 7));
    }
    return unused;
}

TEST(helpers_join_several_works_at_once) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_HOST_THREADS", "8", 1);
    CHECK_EQ_INT(mp_helper_count(), 4);
    pthread_t threads[3];
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, take_piles, NULL), 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
}

TEST(copies_are_staged_where_there_are_helpers) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_HOST_THREADS", "6", 1);
    CHECK(mp_staging_pays(2 * MIB) && !mp_staging_pays(2 * MIB - 1));
}

/* ---- copies ---- */

static mp_staging *staging_open(void) {
    mp_staging *staging = calloc(1, sizeof *staging);
    CHECK(staging != NULL && pthread_mutex_init(&staging->lock, NULL) == 0);
    return staging;
}

static void staging_end(mp_staging *staging, mp_device *device) {
    mp_staging_close(staging, device);
    (void)pthread_mutex_destroy(&staging->lock);
    free(staging);
}

typedef struct subject {
    mp_device *device;
    mp_staging *staging;
    mp_stream *stream;
    mp_addr memory;
    unsigned char *bytes, *kept, *back; /* the same twice; what came back */
    size_t size;
} subject;

static void subject_open(subject *s, mp_device *device, mp_staging *staging, size_t size) {
    *s = (subject){.device = device, .staging = staging, .size = size};
    s->bytes = malloc(size);
    s->kept = malloc(size);
    s->back = calloc(1, size);
    CHECK(s->bytes != NULL && s->kept != NULL && s->back != NULL);
    for (size_t i = 0; i < size; i++) {
        s->kept[i] = (unsigned char)((i * 2654435761u + size) >> 11);
    }
    memcpy(s->bytes, s->kept, size);
    CHECK_OK(device->ops->stream_create(device, &s->stream));
    CHECK_OK(device->ops->alloc(device, size, &s->memory));
}

static void subject_close(subject *s) {
    s->device->ops->stream_destroy(s->device, s->stream);
    s->device->ops->free(s->device, s->memory, s->size);
    free(s->bytes);
    free(s->kept);
    free(s->back);
}

static mp_status send(subject *s, bool *done) {
    return mp_staging_send(s->staging, s->device, s->stream, s->memory, s->bytes, s->size, done);
}

static mp_status fetch(subject *s, bool *done) {
    return mp_staging_fetch(s->staging, s->device, s->stream, s->back, s->memory, s->size, done);
}

/* There and back; what is queued before comes before, and the source may change at once. */
static void go_and_return(subject *s) {
    bool sent = false, fetched = false;
    CHECK_OK(s->device->ops->fill(s->device, s->stream, s->memory, 0xaa, 1, s->size));
    CHECK_OK(send(s, &sent));
    CHECK(sent);
    memset(s->bytes, 0x55, s->size);
    CHECK_OK(fetch(s, &fetched));
    CHECK(fetched);
    CHECK(memcmp(s->back, s->kept, s->size) == 0);
    memcpy(s->bytes, s->kept, s->size);
}

DEVICE_TEST(staged_copies_are_whole_and_in_order) {
    static const size_t sizes[] = {1, MIB + 1, 8 * MIB, LARGE};
    mp_staging *staging = staging_open();
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        subject s;
        subject_open(&s, device, staging, sizes[i]);
        go_and_return(&s);
        subject_close(&s);
    }
    CHECK_EQ_INT(staging->count, 1);
    staging_end(staging, device);
}

static void *go_often(void *context) {
    subject *s = context;
    for (int i = 0; i < 2; i++) {
        go_and_return(s);
    }
    return NULL;
}

DEVICE_TEST(staged_copies_of_several_threads) {
    subject subjects[4];
    pthread_t threads[MP_COUNT_OF(subjects)];
    mp_staging *staging = staging_open();
    for (size_t i = 0; i < MP_COUNT_OF(subjects); i++) {
        subject_open(&subjects[i], device, staging, (i + 2) * MIB + i);
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, go_often, &subjects[i]), 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(subjects); i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
        subject_close(&subjects[i]);
    }
    CHECK(staging->count <= (int)MP_COUNT_OF(subjects));
    staging_end(staging, device);
}

/* Whatever way the device takes. */
DEVICE_TEST(large_copies_of_memory_that_is_not_pinned) {
    subject s;
    subject_open(&s, device, NULL, LARGE);
    const mp_device_ops *ops = device->ops;
    mp_stream *streams[] = {s.stream, NULL};
    for (size_t i = 0; i < MP_COUNT_OF(streams); i++) {
        memset(s.back, 0, s.size);
        CHECK_OK(ops->fill(device, s.stream, s.memory, 0xaa, 1, s.size));
        CHECK_OK(ops->stream_synchronize(device, s.stream));
        CHECK_OK(ops->copy(device, streams[i], s.memory, (mp_addr)s.bytes, s.size));
        CHECK_OK(ops->copy(device, streams[i], (mp_addr)s.back, s.memory, s.size));
        CHECK(memcmp(s.back, s.kept, s.size) == 0);
    }
    subject_close(&s);
}

/* ---- faults ---- */

/* The nth call fails: either the copy does, or it says that nothing was done. */
static bool fail_once(subject *s, uint64_t nth, mp_status fault) {
    bool done = false;
    memset(s->back, 0, s->size);
    (void)mp__host_device_fail(s->device, nth, fault);
    mp_status status = send(s, &done);
    if (status == MP_OK && done) {
        status = fetch(s, &done);
    }
    const bool over = mp__host_device_fail(s->device, 0, MP_OK);
    CHECK(status == MP_OK || (status == fault && mp_error_message()[0] != '\0'));
    CHECK(!over || (status == MP_OK && done));
    CHECK(status != MP_OK || !done || memcmp(s->back, s->kept, s->size) == 0);
    CHECK_OK(s->device->ops->stream_synchronize(s->device, s->stream));
    return over;
}

TEST(a_staged_copy_passes_on_what_fails) {
    const mp_status faults[] = {MP_DEVICE, MP_OUT_OF_MEMORY};
    mp_log_set_sink(no_line, NULL);
    for (size_t i = 0; i < 3 * MP_COUNT_OF(faults); i++) {
        const mp_host_config config = {
            .mode = i % 3, .seed = test_seed(), .memory_bytes = (size_t)64 << 20};
        mp_device *device = NULL;
        CHECK_OK(mp__host_device_create(&config, &device));
        mp_staging *staging = staging_open();
        subject s;
        subject_open(&s, device, staging, 9 * MIB + 1);
        for (uint64_t nth = 1; !fail_once(&s, nth, faults[i / 3]); nth++) {
        }
        go_and_return(&s);
        subject_close(&s);
        staging_end(staging, device);
        CHECK(mp__host_device_breach(device) == NULL);
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

/* All rings are in use, or there is no memory for one. */
TEST(a_copy_is_not_staged_without_pinned_memory) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 * MIB};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    mp_log_set_sink(no_line, NULL);
    mp_staging *staging = staging_open();
    subject s;
    bool done = true;
    subject_open(&s, device, staging, 4 * MIB);
    (void)mp__host_device_fail(device, 1, MP_OUT_OF_MEMORY);
    CHECK_OK(send(&s, &done));
    CHECK(!done);
    CHECK_EQ_INT(staging->count, 0);
    staging->count = 4;
    done = true;
    CHECK_OK(fetch(&s, &done));
    CHECK(!done);
    subject_close(&s);
    staging_end(staging, device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
